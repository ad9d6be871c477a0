#include "jit/norm/render.h"

#include "jit/norm/config.h"
#include "jit/op/arch.h"
#include "jit/op/source_text.h"

namespace kiln {
namespace {

std::string render(const Specialization& spec, const char* file, const char* function,
                   const NormConfig& config, int stages, bool split) {
  const auto traits = spec.traits_as<NormTraits>();
  SourceText text;
  text << "#include \"/kiln/norm/" << file << "\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  using Weight = " << type_or(traits.weight, traits.input) << ";\n"
       << "  using Bias = " << type_or(traits.bias, traits.input) << ";\n"
       << "  static constexpr kiln::Norm kNorm = kiln::Norm::"
       << (traits.kind == NormKind::rms ? "rms" : "layer") << ";\n"
       << "  static constexpr kiln::Activation kActivation = kiln::Activation::"
       << name_of(kActivationNames, traits.activation) << ";\n"
       << "  static constexpr bool kWeight = " << boolean(traits.weight != DType::none)
       << ", kBias = " << boolean(traits.bias != DType::none)
       << ", kResidual = " << boolean(traits.residual) << ";\n"
       << "  static constexpr int kVector = " << static_cast<int>(traits.vector)
       << ", kVectors = " << config.vectors << ", kThreadsPerRow = " << config.threads << ";\n"
       << "  static constexpr int kRowsPerBlock = " << config.rows_per_block
       << ", kCluster = " << config.cluster << ", kStages = " << stages << ";\n"
       << "  static constexpr bool kEarlyWeights = " << boolean(config.early_weights);
  if (split) text << ", kOverlaps = " << boolean(may_overlap(spec.arch()));
  text << ";\n};\n\n"
       << "extern \"C\" __global__ void "
       << "__launch_bounds__(Config::kThreadsPerRow * Config::kRowsPerBlock, "
       << (stages > 0 ? residents_of(config, spec.arch()) : 1) << ")\n"
       << kEntryName << "(const __grid_constant__ kiln::NormParams args) {\n"
       << "  kiln::" << function << "<Config>(args);\n}\n";
  return text.str();
}

// Both launches of a call have the same shape.
NormConfig part_of(const Specialization& spec) {
  const NormSplitConfig& row = norm_split_configs(1)[static_cast<std::size_t>(spec.row())];
  return {.threads = row.threads, .vectors = row.vectors, .early_weights = true, .reason = {}};
}

}  // namespace

std::string render_norm(const Specialization& spec, const UserTexts&) {
  const NormConfig& config = norm_configs()[static_cast<std::size_t>(spec.row())];
  const int stages = stages_of(config, spec.traits_as<NormTraits>(), spec.arch());
  return render(spec, "norm.cuh", "norm", config, stages, /*split=*/false);
}

std::string render_norm_partial(const Specialization& spec, const UserTexts&) {
  return render(spec, "split.cuh", "norm_partial", part_of(spec), /*stages=*/0, /*split=*/true);
}

std::string render_norm_apply(const Specialization& spec, const UserTexts&) {
  return render(spec, "split.cuh", "norm_apply", part_of(spec), /*stages=*/0, /*split=*/true);
}

}  // namespace kiln
