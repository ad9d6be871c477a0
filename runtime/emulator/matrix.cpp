// The table of matrix instructions and what they have in common.
#include "runtime/emulator/matrix.h"

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

namespace {

void decode_wmma(Decoder& decoder, const Instruction&, Op&) { decoder.unknown(); }

constexpr OpcodeRow kOpcodes[] = {{"mma", decode_mma},           {"wmma", decode_wmma},
                                  {"wgmma", decode_wgmma},       {"ldmatrix", decode_ldmatrix},
                                  {"stmatrix", decode_stmatrix}, {"movmatrix", decode_movmatrix}};

}  // namespace

std::span<const OpcodeRow> matrix_opcodes() { return kOpcodes; }

}  // namespace kiln::runtime::emulator
