// Instructions about clusters, register budgets and dependent grids.
#pragma once

#include "runtime/emulator/decode.h"

namespace kiln::runtime::emulator {

void decode_mapa(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_getctarank(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_setmaxnreg(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_griddepcontrol(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_createpolicy(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_tensormap(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
