// What a user wrote into a kernel: the texts behind the digests of a specialization.
#pragma once

#include <string_view>

#include "kiln/variant.h"

namespace kiln {

// Looked at on a miss only.
struct UserTexts {
  const Variant* variant = nullptr;  // null when the variant digest is zero
  std::string_view epilogue{};
};

}  // namespace kiln
