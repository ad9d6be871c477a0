// Asynchronous forms of opcodes that other files decode.
#pragma once

#include "runtime/emulator/decode/decode.h"

namespace kiln::runtime::emulator {

// barrier.cluster.arrive and .wait.
void decode_cluster_barrier(Decoder& decoder, const Instruction& instruction, Op& op);

// st.async and red.async: to be called for `st` and `red` first. False, with nothing done, when the
// instruction is not .async.
bool decode_async_store(Decoder& decoder, const Instruction& instruction, Op& op);

// fence.mbarrier_init and fence.proxy.async: the mbarriers that these lanes have initialised may be
// used by asynchronous units.
void fence_mbarrier_init(Warp& warp, Mask lanes);

}  // namespace kiln::runtime::emulator
