#include "jit/op/names.h"

namespace kiln {

const char* name_of(std::span<const Named> list, std::uint8_t value) {
  for (const Named& entry : list) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

std::optional<std::uint8_t> value_of(std::span<const Named> list, std::string_view name) {
  for (const Named& entry : list) {
    if (name == entry.name) return entry.value;
  }
  return std::nullopt;
}

std::string choices_text(std::span<const Named> list) {
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == list.size() ? " or " : ", ") + std::string(list[i].name);
  }
  return text;
}

}  // namespace kiln
