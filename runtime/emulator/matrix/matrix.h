// The families of matrix instructions, among themselves.
#pragma once

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

void decode_mma(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_ldmatrix(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_stmatrix(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_movmatrix(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_wgmma(Decoder& decoder, const Instruction& instruction, Op& op);

// What every .aligned instruction asks for: all 32 lanes at the same op. False: return
// `wait_for_lanes(warp)`. Raises Fault::divergence where lanes can never come.
bool aligned(Warp& warp, Mask mask);
Flow wait_for_lanes(Warp& warp);

// Fails unless the module's .target is sm_<least> or later: what ptxas would refuse.
void need_target(Decoder& decoder, int least);

// Takes an instruction's modifiers one after the other; what is left unread is not modelled.
class ModifierReader {
 public:
  explicit ModifierReader(const Instruction& instruction) : instruction_(instruction) {}
  // The next modifier, empty at the end.
  std::string_view next() { return done() ? std::string_view{} : instruction_.modifiers[at_++]; }
  std::string_view peek() const {
    return done() ? std::string_view{} : instruction_.modifiers[at_];
  }
  bool take(std::string_view modifier) {
    if (peek() != modifier || done()) return false;
    ++at_;
    return true;
  }
  bool done() const { return at_ == instruction_.modifiers.size(); }

 private:
  const Instruction& instruction_;
  std::size_t at_ = 0;
};

}  // namespace kiln::runtime::emulator
