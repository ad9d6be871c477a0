// Expressions of logits that are linear in the logit and in the key's index.
#pragma once

#include <string>

#include "kiln/variant.h"

namespace kiln {

// `f * logit + slope * (kv - q)` has the factor `f` and the growth `slope`; `logit - slope * abs(q
// - kv)` has 1 and `slope`, but only for keys that are not behind the query: the definition's mask
// says so, as `q >= kv` does, or the call's must. Both are expressions of the batch entry and the
// head; empty where nothing is known.
struct LogitTilt {
  std::string factor{}, growth{};
  bool from_row = false;  // it is of keys up to the one with the index of the query's row
  bool of_past = false;   // it is of keys up to the query's own, as the call's mask must say

  bool is_known() const { return !factor.empty(); }
};
LogitTilt tilt_of(const VariantDefinition& definition);

}  // namespace kiln
