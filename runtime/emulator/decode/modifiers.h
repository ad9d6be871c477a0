// Reading an instruction's modifiers so that none is overlooked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "runtime/emulator/arithmetic/numbers.h"
#include "runtime/emulator/decode/decode.h"

namespace kiln::runtime::emulator {

// A decode function takes what it understands; finish() refuses the instruction when something is
// left. At most 64 modifiers (no instruction has 20).
class Modifiers {
 public:
  Modifiers(Decoder& decoder, const Instruction& instruction);

  // Whether the modifier is there (each take() uses up one occurrence).
  bool take(std::string_view modifier);
  // The first that is there, by its index in `choices`; -1 = none.
  int take_one_of(std::initializer_list<std::string_view> choices);
  // The next modifier that is a type; Type::none when there is none left.
  Type take_type();
  // .rn .rna .rz .rm .rp; `otherwise` where there is none.
  Rounding take_rounding(Rounding otherwise = Rounding::rn);
  // decoder.unknown() unless everything has been taken.
  void finish() const;

 private:
  const Decoder& decoder_;
  const Instruction& instruction_;
  std::uint64_t left_;
};

}  // namespace kiln::runtime::emulator
