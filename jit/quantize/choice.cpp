#include "jit/op/arch.h"
#include "jit/quantize/config.h"
#include "jit/quantize/family.h"
#include "templates/quantize/params.h"

namespace kiln {

std::string tile_name(const QuantizeConfig& config) {
  std::string name = std::to_string(config.lanes) + "x" + std::to_string(config.vectors);
  if (config.cluster > 1) name += " cluster " + std::to_string(config.cluster);
  return name + (config.keeps ? " kept" : config.turns ? " in turns" : "");
}

std::int64_t kept_bytes(const QuantizeConfig& config, const QuantizeTraits& traits,
                        std::int64_t columns) {
  if (!config.keeps) return 0;
  return quantize_kept_bytes(columns, traits.vector, config.lanes, size_of(traits.input),
                             traits.activation != Activation::none);
}

bool admits(const QuantizeConfig& config, const QuantizeTraits& traits, int arch) {
  if (config.cluster > 1 && arch_table()[static_cast<std::size_t>(arch)].number < 90) return false;
  return !config.keeps || traits.vector * size_of(traits.input) >= 4;
}

int most_kept_bytes(const QuantizeConfig& config, int arch) {
  if (!config.keeps) return 0;
  // Each CTA has some of its own, for the maxima of warps, and 1 KB for the system.
  constexpr int kOwnBytes = 256, kSystemBytes = 1024;
  const Arch& limits = arch_table()[static_cast<std::size_t>(arch)];
  if (config.residents == 1) return limits.shared_bytes - kOwnBytes;
  return limits.shared_bytes_per_sm / config.residents - kSystemBytes - kOwnBytes;
}

namespace {

bool serves(const QuantizeConfig& config, const QuantizeTraits& traits, int arch,
            const QuantizeSize& size) {
  if (!admits(config, traits, arch)) return false;
  if (config.keeps) {
    return kept_bytes(config, traits, size.columns) <= most_kept_bytes(config, arch);
  }
  if (config.turns) return true;
  if (size.columns > static_cast<std::int64_t>(config.accesses()) * traits.vector) return false;
  const bool gated = traits.activation != Activation::none;
  const int at_once = config.cluster > 1 ? 512 / config.lanes : 1;  // CTAs of a multiprocessor
  const bool few =
      quantize_blocks(size.groups, config.lanes, config.cluster) <= at_once * size.sm_count;
  switch (config.calls) {
    case QuantizeCalls::few:
      return few;
    case QuantizeCalls::few_or_without_gates:
      return few || !gated;
    case QuantizeCalls::few_with_gates:
      return few && gated;
    case QuantizeCalls::all:
      break;
  }
  return true;
}

}  // namespace

int choose_quantize(const QuantizeTraits& traits, int arch, const QuantizeSize& size) {
  const auto configs = quantize_configs();
  std::size_t row = 0;
  while (!serves(configs[row], traits, arch, size)) ++row;
  return static_cast<int>(row);
}

void resolve(QuantizeProblem& problem, const runtime::Device& device, bool) {
  const int arch = arch_of(device);
  const long long groups = static_cast<long long>(problem.rows) * problem.groups;
  const int row =
      choose_quantize(problem.traits, arch, {problem.group, groups, device.info().sm_count});
  const QuantizeConfig& config = quantize_configs()[static_cast<std::size_t>(row)];
  Step& step = problem.recipe.first();
  step.spec = Specialization(quantize_template(), arch, row, problem.traits);
  step.blocks = grid_of(quantize_blocks(groups, config.lanes, config.cluster));
  step.cluster = static_cast<unsigned>(config.cluster);
  step.shared_bytes = static_cast<unsigned>(kept_bytes(config, problem.traits, problem.group));
}

double flops_of(const QuantizeProblem& problem) {
  // Of an element: its part of the maximum and the division; of a gated one the activation, too.
  const double operations = problem.traits.activation == Activation::none ? 10 : 20;
  return operations * problem.rows * problem.columns;
}

}  // namespace kiln
