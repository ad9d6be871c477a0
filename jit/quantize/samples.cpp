// Kernels for each thing that the template does differently: each row of the table, and with it
// each dtype and option once.
#include "jit/quantize/samples.h"

#include "jit/quantize/config.h"
#include "jit/quantize/family.h"
#include "jit/quantize/problem.h"

namespace kiln {

std::vector<Specialization> quantize_samples(int arch) {
  QuantizeTraits base, gated, masked, quads, single, other, bytes, quad_gates;
  gated.activation = Activation::swiglu;
  masked.activation = Activation::geglu_tanh, masked.counts = true;
  quads.input = DType::f32, quads.vector = 4, quads.power_of_two = true;
  single.input = DType::f16, single.output = DType::i8, single.vector = 1;
  other.output = DType::f8_e5m2, other.vector = 2, other.activation = Activation::geglu;
  quad_gates.input = DType::f32, quad_gates.vector = 8, quad_gates.activation = Activation::swiglu;
  bytes.power_of_two = bytes.byte_scales = true;
  std::vector<Specialization> specs;
  const auto add = [&](int row, const QuantizeTraits& traits) {
    if (!admits(quantize_configs()[static_cast<std::size_t>(row)], traits, arch)) return;
    specs.emplace_back(quantize_template(), arch, row, traits);
  };
  add(0, base), add(0, masked), add(0, quads);
  add(1, gated), add(2, bytes), add(3, quads), add(4, masked);
  add(5, base), add(6, gated), add(6, single);
  add(7, gated), add(7, quad_gates);
  add(8, base), add(8, bytes);
  add(9, base), add(9, other), add(9, single);
  add(10, gated);
  add(11, masked);
  add(12, quad_gates);
  add(13, base), add(13, gated), add(13, other), add(13, quads);
  add(14, masked), add(14, quad_gates);
  add(15, gated), add(15, single);
  return specs;
}

}  // namespace kiln
