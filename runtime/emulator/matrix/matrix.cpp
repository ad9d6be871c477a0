// The table of matrix instructions and what they have in common.
#include "runtime/emulator/matrix/matrix.h"

#include <algorithm>
#include <bit>

namespace kiln::runtime::emulator {

bool aligned(Warp& warp, Mask mask) {
  if (!warp.gathered(kAllLanes)) return false;
  if (mask != kAllLanes) {
    const Mask missing = ~mask;
    raise(Fault::divergence,
          "an .aligned matrix instruction needs all 32 lanes of its warp; lanes " + hex(missing) +
              " have exited, were never started or are guarded off",
          std::countr_zero(missing));
  }
  return true;
}

Flow wait_for_lanes(Warp&) { return Flow::blocked; }  // gathered() has said for whom

void need_target(Decoder& decoder, int least) {
  const std::string_view target = decoder.program().module->target;
  int number = 0;
  for (char digit : target.substr(std::min<std::size_t>(target.size(), 3))) {
    if (digit < '0' || digit > '9' || number > 1000) break;
    number = number * 10 + (digit - '0');
  }
  if (number >= least) return;
  decoder.fail("needs .target sm_" + std::to_string(least) + " or later, not " +
               std::string(target));
}

namespace {

void decode_wmma(Decoder& decoder, const Instruction&, Op&) { decoder.unknown(); }

constexpr OpcodeRow kOpcodes[] = {{"mma", decode_mma},           {"wmma", decode_wmma},
                                  {"wgmma", decode_wgmma},       {"ldmatrix", decode_ldmatrix},
                                  {"stmatrix", decode_stmatrix}, {"movmatrix", decode_movmatrix}};

}  // namespace

std::span<const OpcodeRow> matrix_opcodes() { return kOpcodes; }

}  // namespace kiln::runtime::emulator
