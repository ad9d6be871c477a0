// What the files of the move family share: their decode functions, predicate sources, special
// registers.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

void decode_mov(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_selp(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_slct(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_setp(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_set(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_prmt(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_cvt(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_cvta(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_isspacep(Decoder& decoder, const Instruction& instruction, Op& op);

// A predicate that is read: a register, !register, or a literal (no register; `inverted` is it).
struct PredicateSource {
  Ref ref = kNoRef;
  bool inverted = false;

  Mask lanes(const Warp& warp) const {
    return (ref == kNoRef ? 0 : warp.predicate(ref)) ^ (inverted ? kAllLanes : 0);
  }
};
PredicateSource predicate_source(Decoder& decoder, const Operand& operand);

// A special register by number; `known` is false for what isn't modelled, as %pm0.
struct SpecialRegister {
  bool known = false;
  bool predicate = false;  // %is_explicit_cluster
  std::uint8_t index = 0;
};
SpecialRegister special_register(std::string_view name);
std::uint64_t read_special(const Warp& warp, std::uint8_t index, int lane);

}  // namespace kiln::runtime::emulator
