// The file of KILN_RECORD: one line of JSON for each kernel that a call missed, its spec.
#pragma once

#include <string>

#include "cache/key.h"

namespace kiln {

bool records_misses();

// Appends the spec of a kernel, once in a process and its forked children. Many processes may share
// the file. A file that cannot be written is one warning, and never an error.
void record_miss(const cache::Key& key, const std::string& spec);

}  // namespace kiln
