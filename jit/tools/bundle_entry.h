// Entries of the cache on their way to another cache: what a bundle (python/kiln/bundle.py) holds.
#pragma once

#include <optional>
#include <string>

#include "cache/entry_file.h"

namespace kiln {

// The files of the first sound entry in any layer, in the same bytes wherever and whenever the
// kernel was compiled by the same NVRTC: pinned, and without the time that compiling took. Null
// where no layer has one. Throws std::invalid_argument for a key that is none.
std::optional<cache::EntryFiles> bundle_entry(const std::string& key);

// The fault of the files as an entry of this key, as a sentence's tail; empty for nothing.
std::string bundle_entry_fault(const std::string& key, const cache::EntryFiles& files);

// Publishes the entry in the writable layer and returns "imported", "present" if a layer has it
// already, or "unwritten". With `replace`, an entry of other bytes counts as missing.
// Requires: bundle_entry_fault() is empty.
std::string store_bundle_entry(const std::string& key, const cache::EntryFiles& files,
                               bool replace);

}  // namespace kiln
