// Digests of what users wrote: the identity of a variant or an expression.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "kiln/variant.h"

namespace kiln {

// Over labelled texts, the same inside one process and across them.
Digest128 digest_of(std::initializer_list<std::pair<const char*, std::string>> fields);

}  // namespace kiln
