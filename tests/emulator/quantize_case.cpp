// The problems of KernelCase for quantising. A group of columns fills its threads but for one
// access, or half of them, or has more than one turn; the last group of a row is shorter, and CTAs
// have groups of their own and a last one in part.
#include <algorithm>
#include <cmath>

#include "jit/quantize/config.h"
#include "jit/quantize/family.h"
#include "templates/quantize/params.h"
#include "tests/emulator/kernel_case.h"

namespace kiln::testing {
namespace {

double gate_value(Activation activation, double x) {
  if (activation == Activation::swiglu) return x / (1 + std::exp(-x));
  if (activation == Activation::geglu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

double largest_of(DType dtype) {
  return dtype == DType::f8_e4m3 ? 448 : dtype == DType::f8_e5m2 ? 57344 : 127;
}

// Half a step of the largest number, and what rounding the quotient before may add.
double tolerance_of(DType dtype) {
  return dtype == DType::f8_e4m3 ? 1.0 / 14 : dtype == DType::f8_e5m2 ? 1.0 / 7 : 1.0 / 64;
}

}  // namespace

void KernelCase::make_quantize(int size) {
  const auto traits = spec_.traits_as<QuantizeTraits>();
  const QuantizeConfig& config = quantize_configs()[static_cast<std::size_t>(spec_.row())];
  // Groups of several turns where these are kept: of as many as there is room for, but the last.
  const int turn = config.accesses() * traits.vector;
  const int turns = config.keeps
                        ? std::min(most_kept_bytes(config, spec_.arch()) /
                                           static_cast<int>(kept_bytes(config, traits, turn)) -
                                       1,
                                   5)
                        : 1;
  const int accesses = size == 0   ? config.accesses() - 1
                       : size == 1 ? std::max(config.accesses() / 2, 1)
                                   : config.accesses() * turns + (config.turns ? 3 : 0);
  const int group = accesses * traits.vector, columns = 2 * group + traits.vector;
  const int teams = quantize_threads(config.lanes) / config.lanes;
  const int runs = 2, inner = std::max(teams / 6, 1) + size % 2;
  const bool gated = traits.activation != Activation::none;
  Tensor& x = tensor(traits.input, {runs, inner, gated ? 2 * columns : columns});
  Tensor& out = tensor(traits.output, {runs, inner, columns});
  Tensor& scale = tensor(traits.byte_scales ? DType::f8_e8m0 : DType::f32, {runs, inner, 3});
  QuantizeOptions options;
  options.group = group, options.activation = traits.activation;
  options.scale_power_of_two = traits.power_of_two;
  if (traits.counts) options.counts = integers({runs}, {inner, inner + 3}).view;
  QuantizeProblem call;
  check_quantize(x.view, out.view, scale.view, options, call);
  Step& step = call.recipe.first();
  step.spec = spec_;
  step.shared_bytes = static_cast<unsigned>(kept_bytes(config, traits, group));
  step.blocks = static_cast<unsigned>(
      quantize_blocks(static_cast<long long>(call.rows) * 3, config.lanes, config.cluster));
  step.cluster = static_cast<unsigned>(config.cluster);
  recipe_ = call.recipe;
  std::vector<double> codes, scales;
  const auto width = static_cast<std::size_t>(gated ? 2 * columns : columns);
  for (int row = 0; row < runs * inner; ++row) {
    const float* const from = x.values.data() + static_cast<std::size_t>(row) * width;
    for (int start = 0; start < columns; start += group) {
      const int end = std::min(start + group, columns);
      std::vector<double> values;
      for (int i = start; i < end; ++i) {
        values.push_back(gated ? gate_value(traits.activation, from[i]) * from[columns + i]
                               : from[i]);
      }
      double most = kQuantizeFloor;
      for (double value : values) most = std::max(most, std::abs(value));
      double by = most / largest_of(traits.output);
      if (traits.power_of_two) by = std::exp2(std::ceil(std::log2(by)));
      scales.push_back(by);
      for (double value : values) codes.push_back(value / by);
    }
  }
  outputs_.push_back({&out, codes, tolerance_of(traits.output)});
  outputs_.push_back({&scale, scales, 1e-5});
}

}  // namespace kiln::testing
