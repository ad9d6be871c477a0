#include "runtime/emulator/decode.h"

namespace kiln::runtime::emulator {

std::span<const OpcodeRow> memory_opcodes() { return {}; }

}  // namespace kiln::runtime::emulator
