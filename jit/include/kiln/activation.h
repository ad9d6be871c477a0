// Activations that operations apply to their outputs.
#pragma once

#include <cstdint>
#include <string>

#include "kiln/export.h"

namespace KILN_PUBLIC kiln {

// The last three are gated. They take two columns of b, apply silu, gelu or gelu_tanh to the first,
// which is the gate, and multiply the result by the second.
enum class Activation : std::uint8_t {
  none,
  relu,
  gelu,
  gelu_tanh,
  silu,
  swiglu,
  geglu,
  geglu_tanh
};
Activation parse_activation(const std::string& name);  // "" = none; "gelu" and "geglu" are erf

}  // namespace KILN_PUBLIC kiln
