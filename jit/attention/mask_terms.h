// Sums of ints in a mask, sorted into positions and the rest: `q - w > kv` says q - kv > w.
#pragma once

#include <vector>

#include "jit/op/expression.h"

namespace kiln {

// q * query + kv * key + shift * (len_kv - len_q) + the sum of the terms. `row` is the query less
// this shift.
struct MaskTerms {
  struct Term {
    ExpressionPointer value;
    bool negative = false;
  };
  int q = 0, kv = 0, shift = 0;
  int positions = 0;  // that were added up
  std::vector<Term> terms{};

  bool has_distance() const { return q != 0 && q == -kv; }
  // Whether positions, added in any order, stay within the ints: they are at most 2^30.
  bool is_tame() const { return positions <= 2 && (q == 0 || q != kv); }
};

MaskTerms terms_of(const ExpressionPointer& sum);

// a - b.
MaskTerms difference(const MaskTerms& a, const MaskTerms& b);

}  // namespace kiln
