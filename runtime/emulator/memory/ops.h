// How the instructions that access memory are decoded.
#pragma once

#include <string_view>

#include "runtime/emulator/decode/decode.h"

namespace kiln::runtime::emulator {

void decode_load(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_store(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_atomic(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_reduction(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_fence(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_membar(Decoder& decoder, const Instruction& instruction, Op& op);
// prefetch, prefetchu, applypriority, discard: nothing to do.
void decode_prefetch(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
