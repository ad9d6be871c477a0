// Instructions about clusters, register budgets and dependent grids.
#pragma once

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

void decode_mapa(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_getctarank(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_setmaxnreg(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_griddepcontrol(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_createpolicy(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_tensormap(Decoder& decoder, const Instruction& instruction, Op& op);

// At a warp's end: its warpgroup must have traded registers as one.
void check_register_trades(const Warp& warp);

}  // namespace kiln::runtime::emulator
