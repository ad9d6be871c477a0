// Named barriers: bar.sync, bar.arrive, bar.red and their barrier.* spellings.
#pragma once

#include "runtime/emulator/decode/decode.h"

namespace kiln::runtime::emulator {

void decode_barrier(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
