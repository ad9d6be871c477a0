// Expressions of logits that are a soft cap: `a * tanh(b * logit)`.
#pragma once

#include <string>

#include "kiln/variant.h"

namespace kiln {

// Both factors are expressions of numbers, parameters and elements of tables at numbers, and so the
// same for all logits of a call.
struct LogitCap {
  std::string function{};  // "tanh", or CUDA's own "tanhf"; empty where the logits are no cap
  std::string before{}, after{};

  bool is_known() const { return !function.empty(); }
};
LogitCap cap_of(const VariantDefinition& definition);

// The hooks of such an expression in the variant's struct, which needs
// templates/attention/logit_cap.cuh.
std::string cap_hooks(const VariantDefinition& definition, const LogitCap& cap);

}  // namespace kiln
