#include "runtime/emulator/decode/modifiers.h"

namespace kiln::runtime::emulator {

Modifiers::Modifiers(Decoder& decoder, const Instruction& instruction)
    : decoder_(decoder), instruction_(instruction) {
  const std::size_t count = instruction.modifiers.size();
  if (count > 63) decoder.unknown();
  left_ = (std::uint64_t{1} << count) - 1;
}

bool Modifiers::take(std::string_view modifier) {
  for (std::size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((left_ & bit) != 0 && instruction_.modifiers[i] == modifier) {
      left_ &= ~bit;
      return true;
    }
  }
  return false;
}

int Modifiers::take_one_of(std::initializer_list<std::string_view> choices) {
  int index = 0;
  for (std::string_view choice : choices) {
    if (take(choice)) return index;
    ++index;
  }
  return -1;
}

Type Modifiers::take_type() {
  for (std::size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const Type type = type_of(instruction_.modifiers[i]);
    if ((left_ & bit) != 0 && type != Type::none) {
      left_ &= ~bit;
      return type;
    }
  }
  return Type::none;
}

Rounding Modifiers::take_rounding(Rounding otherwise) {
  const int index = take_one_of({"rn", "rna", "rz", "rm", "rp"});
  return index < 0 ? otherwise : static_cast<Rounding>(index);
}

void Modifiers::finish() const {
  if (left_ != 0) decoder_.unknown();
}

}  // namespace kiln::runtime::emulator
