// What a variant's expression adds to logits, where that grows by the same from key to key.
#pragma once

#include <string>

#include "kiln/variant.h"

namespace kiln {

// Of `logit + slope * (kv - q)` the growth is `slope`, of `logit - slope * abs(q - kv)` too, but
// only of keys that are not behind the query.
struct LogitTilt {
  std::string
      growth{};  // an expression of the batch entry and the head; empty where nothing is known
  bool of_past = false;  // it is of keys up to the query's own alone
};
LogitTilt tilt_of(const VariantDefinition& definition);

}  // namespace kiln
