#include "runtime/emulator/decode.h"

namespace kiln::runtime::emulator {

std::span<const OpcodeRow> arithmetic_opcodes() { return {}; }

}  // namespace kiln::runtime::emulator
