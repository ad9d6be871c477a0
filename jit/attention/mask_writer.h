// Writes formulas of a mask as device code over intervals.
#pragma once

#include <string>

#include "jit/attention/mask_formula.h"
#include "jit/attention/mask_terms.h"
#include "kiln/variant.h"

namespace kiln {

// Everything that it returns is an expression of device code. What needs a statement is appended to
// a body that precedes the expression. `box` is the name of a MaskBox.
class MaskWriter {
 public:
  explicit MaskWriter(const VariantDefinition& definition) : d_(definition) {}

  // The body of a function of a MaskBox `box`, which returns whether the formula may hold.
  std::string body(const Formula& formula);
  // Likewise, which returns the keys of the box outside of which the formula does not hold, as far
  // as comparisons of a conjunction, or of runs that begin at the first key, bound them.
  std::string keys_body(const Formula& formula);
  // Whether of a single query the formula holds for one run of keys, which run_body() writes.
  bool bounds_rows(const Formula& formula);
  // The body of a function of a Position `row` that returns this run. Requires: bounds_rows().
  std::string run_body(const Formula& formula);
  // Whether it bounds the keys from above alone, so that a query that sees any key sees the first.
  bool shows_first_keys(const Formula& formula);

 private:
  std::string keys(const Formula& formula, const std::string& box);
  std::string narrow_keys(const Formula& part, const std::string& box, const std::string& narrowed);
  std::string may(const Formula& formula, const std::string& box);
  std::string may_all(const Formula& formula, const std::string& box);
  // The statement by which a part of a conjunction narrows a copy of the box; "" if it bounds none.
  std::string narrow(const Formula& part, const std::string& box, const std::string& narrowed);
  std::string may_compare(const Formula& formula, const std::string& box);

  // A comparison of q, kv or their distance with an interval.
  struct Bound {
    const char* position = nullptr;  // the member of MaskBox; null if it is no such comparison
    Operation comparison = Operation::equal;
    std::string interval{};
    bool is_exact = false;  // it holds for just the positions that the interval bounds
    std::string number{};   // if so, what the interval is the point of
  };
  Bound bound(const Formula& comparison, const std::string& box);
  // The sum of terms that are points, as far as positions can tell it from another.
  std::string number(const MaskTerms& terms, const std::string& box);

  // Ints, of which "" is none: the first key, the one behind the last; and what the row must be.
  struct Run {
    std::string begin{}, end{}, condition{};
  };
  Run run(const Formula& formula);
  Run run_of_comparison(const Formula& comparison);
  // Wraps `interval` where the sum of a side's terms might overflow.
  std::string guarded(const MaskTerms& side, std::string interval, const std::string& box);

  std::string integer(const ExpressionPointer& e, const std::string& box);
  std::string integer_operation(const Expression& e, const std::string& box);
  std::string sum(const MaskTerms& terms, std::string first, const std::string& box);
  std::string real(const ExpressionPointer& e, const std::string& box);
  std::string truth(const ExpressionPointer& e, const std::string& box);
  std::string choice(const Expression& e, const std::string& box, bool is_real);
  std::string new_name(const char* prefix);
  // Whether there is still room: what stands at several places of a formula is written as often.
  bool has_room() { return ++written_ <= 1000; }

  const VariantDefinition& d_;
  std::string lines_;
  int names_ = 0, written_ = 0;
};

}  // namespace kiln
