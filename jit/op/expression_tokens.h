// The tokens of an expression, for its parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// The first character, or pair of them, that no expression has which the parser follows: quotes,
// braces, brackets of subscripts and lambdas, assignments, digraphs. Empty where there is none.
std::string foreign_character(std::string_view text);

// Names, numbers and operators, without blanks and comments. Requires: no foreign character.
std::vector<std::string> tokens_of(std::string_view text);

bool is_name(std::string_view token);
bool is_number(std::string_view token);

// An int is one that C++ gives the type int. A float is one that Kiln makes a float.
struct Number {
  bool is_int = false, is_float = false;
  std::int64_t value = 0;  // of an int
};
Number read_number(std::string_view token);

}  // namespace kiln
