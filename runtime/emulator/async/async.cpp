// The table of asynchronous and cluster instructions.
#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/async/copy.h"
#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/async/mbarrier.h"
#include "runtime/emulator/machine/cluster_ops.h"

namespace kiln::runtime::emulator {
namespace {

void decode_cp(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (instruction.has("tensor")) return decode_bulk_tensor(decoder, instruction, op);
  if (instruction.has("bulk")) return decode_bulk(decoder, instruction, op);
  decode_cp_async(decoder, instruction, op);
}

constexpr OpcodeRow kOpcodes[] = {
    {"cp", decode_cp},
    {"mbarrier", decode_mbarrier},
    {"mapa", decode_mapa},
    {"getctarank", decode_getctarank},
    {"setmaxnreg", decode_setmaxnreg},
    {"griddepcontrol", decode_griddepcontrol},
    {"createpolicy", decode_createpolicy},
    {"tensormap", decode_tensormap},
};

}  // namespace

std::span<const OpcodeRow> async_opcodes() { return kOpcodes; }

}  // namespace kiln::runtime::emulator
