// A parser of what users write most in C++ expressions: literals, names, operators, a few functions
// and casts of bools, ints and floats. It judges nothing, as the compiler does that: a call that it
// does not know is an expression of its own, and a text that it cannot follow has no tree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// The types of values. Unknown: it may be anything, also a type that is none of these.
enum class ValueType : std::uint8_t { unknown, boolean, integer, real };

enum class Operation : std::uint8_t {
  unknown,  // `text` is what could not be read
  literal,  // `text`, and `value` unless it is real
  name,     // `text`
  negate,
  complement,
  invert,  // !
  add,
  subtract,
  multiply,
  divide,
  remainder,
  shift_left,
  shift_right,
  less,
  at_most,
  more,
  at_least,
  equal,
  differ,
  bit_and,
  bit_or,
  bit_xor,
  both,    // &&
  either,  // ||
  choose,  // ?:
  least,   // min
  largest,
  magnitude,  // abs
  convert     // to the node's type
};

struct Expression;
using ExpressionPointer = std::shared_ptr<const Expression>;

struct Expression {
  Operation operation = Operation::unknown;
  ValueType type = ValueType::unknown;
  std::string text{};
  std::int64_t value = 0;
  std::vector<ExpressionPointer> operands{};
  std::vector<std::string> words{};  // of a call that could not be read: its tokens
};

struct ParsedExpression {
  ExpressionPointer tree;  // null where the text could not be followed
  std::string fault;       // says of what stopped it, for people
};

// `type_of` gives the type of a name, such as q or at.q, or nothing for one that is not a value. It
// is also asked for calls, by their text without spaces: one of which it gives a type is a name. A
// comparison of ints looks through casts of one of them to long long.
struct NamedType {
  bool exists = false;
  ValueType type = ValueType::unknown;
};
ParsedExpression parse_expression(std::string_view text,
                                  const std::function<NamedType(std::string_view)>& type_of);

}  // namespace kiln
