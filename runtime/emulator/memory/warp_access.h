// The addresses of a whole warp's access, checked together.
#pragma once

#include <array>

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {

// The space and the meaning-free modifiers of ld, st, atom and red.
struct MemoryModifiers {
  Space space = Space::none;  // none = generic
  bool peers = false;         // .shared::cluster
  bool strong = false;        // volatile, or with a memory order
  bool cache_policy = false;  // .L2::cache_hint: one more operand
};
class Modifiers;
// Takes space, order, scope and cache modifiers.
MemoryModifiers take_memory_modifiers(Modifiers& modifiers);

// Where an op's lanes access memory, and how.
struct MemoryOperand {
  Ref address = kNoRef;
  bool narrow = false;  // 32-bit addresses
  std::int64_t offset = 0;
  MemoryModifiers how;
  unsigned bytes = 0;  // of one lane
};
// [address]: with the checks that decoding can make.
MemoryOperand decode_memory_operand(Decoder& decoder, const Operand& operand,
                                    const MemoryModifiers& how, unsigned bytes);

// The host's bytes of every lane of `mask`, after every check and with the shadow told; raises a
// fault. Entries of other lanes mean nothing.
struct LanePointers {
  std::array<std::byte*, kLanes> at;
  Space space = Space::none;  // of all lanes; none when they were not resolved together
};
LanePointers access_lanes(Warp& warp, const MemoryOperand& operand, AccessKind kind, Mask mask);

}  // namespace kiln::runtime::emulator
