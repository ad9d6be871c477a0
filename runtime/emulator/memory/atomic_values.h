// What an atomic operation makes of the old value and its operands.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/emulator/ptx/types.h"

namespace kiln::runtime::emulator {

// Values are the bits of the element, zero-extended.
using Combine = std::uint64_t (*)(std::uint64_t old, std::uint64_t b, std::uint64_t c);

struct AtomicOperation {
  std::string_view name;
  Type type;
  Combine combine;
  // In global memory, where it differs: PTX ISA, "atom": f32 additions flush subnormals there.
  Combine in_global = nullptr;
};
// Null where PTX has no such operation. `noftz` is written with f16 and bf16, and only with them.
const AtomicOperation* find_atomic(std::string_view name, Type type);

}  // namespace kiln::runtime::emulator
