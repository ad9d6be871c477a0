// What a user wrote into a kernel: the texts behind the digests of a specialization.
#pragma once

#include <string_view>

#include "kiln/epilogue.h"
#include "kiln/variant.h"

namespace kiln {

// Looked at on a miss only.
struct UserTexts {
  const Variant* variant = nullptr;  // null when the variant digest is zero
  std::string_view epilogue{};
  const EpilogueDefinition* epilogue_values = nullptr;  // null: it has no parameters and tensors
};

}  // namespace kiln
