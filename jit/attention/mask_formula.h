// A mask's condition as a formula without negations: conjunctions and disjunctions of comparisons.
// Whether the mask may show a pair, and whether it may hide one, are two such formulas.
#pragma once

#include <vector>

#include "jit/op/expression.h"

namespace kiln {

struct Formula {
  enum class Kind { unknown, never, all, any, compare };
  Kind kind = Kind::unknown;  // unknown: nothing is known of when it holds
  Operation comparison = Operation::equal;
  ExpressionPointer left{}, right{};  // of a comparison
  std::vector<Formula> parts{};       // of `all` and `any`, at least two of other kinds than this
};

// The formula of a condition or, if `negated`, of its opposite.
Formula formula_of(const ExpressionPointer& condition, bool negated);
// Whether the condition's formula says all of it. A part of which nothing is known leaves a
// conjunction's formula, which then holds for more than the condition does.
bool is_read_whole(const ExpressionPointer& condition);

// The comparison that says the same of the sides in the other order, or of their negatives.
Operation mirrored(Operation comparison);

}  // namespace kiln
