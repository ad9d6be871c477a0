// Asynchronous forms of opcodes that other files decode.
#pragma once

#include "runtime/emulator/decode.h"

namespace kiln::runtime::emulator {

// barrier.cluster.arrive and .wait.
void decode_cluster_barrier(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
