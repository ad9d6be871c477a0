// Specialization -> source: a few lines of includes, one Config struct, one extern "C" entry.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "jit/specialization.h"

namespace kiln {

inline constexpr const char* kEntryName = "kiln_kernel";
// What the compiler calls a variant's template file: its path must not enter the key.
inline constexpr std::string_view kUserFileLabel = "variant template";

// The user's texts behind the digests of a specialization; looked at on a miss only.
struct UserTexts {
  const VariantDefinition* variant = nullptr;  // null when the variant digest is zero
  std::string_view epilogue;
};

// Requires: `texts` are those whose digests `spec` holds.
std::string render(const Specialization& spec, const UserTexts& texts);

std::string device_type(DType dtype);  // "kiln::bf16", "float"

// One line for people: "flash_attention bfloat16 d128 causal, tile 128x64".
std::string describe(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
