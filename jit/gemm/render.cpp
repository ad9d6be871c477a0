#include "jit/gemm/render.h"

#include "jit/gemm/user_epilogue.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "jit/op/source_text.h"

namespace kiln {

namespace {

Activation activation_of_gates(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return Activation::silu;
    case Activation::geglu:
      return Activation::gelu;
    case Activation::geglu_tanh:
      return Activation::gelu_tanh;
    default:
      return activation;
  }
}

}  // namespace

std::string gemm_epilogue(const GemmTraits& traits, const UserTexts& texts) {
  SourceText text;
  const bool bias = traits.bias != DType::none, residual = traits.residual != DType::none;
  if (traits.epilogue == Digest128{}) {
    text << "using Epilogue = kiln::" << (traits.gate == Gate::none ? "Standard" : "Gated")
         << "Epilogue<kiln::Activation::"
         << name_of(kActivationNames, activation_of_gates(traits.activation)) << ", /*kBias=*/"
         << boolean(bias) << ", /*kResidual=*/" << boolean(residual) << ">;\n";
    return text.str();
  }
  return epilogue_source(traits, texts);
}

std::string gemm_arguments(const std::string& params, const GemmTraits& traits,
                           const UserTexts& texts) {
  if (traits.epilogue == Digest128{} || !is_bound_epilogue(texts)) return params;
  return "kiln::BoundArguments<" + params + ", Epilogue>";
}

DType absent_type(const GemmTraits& traits) {
  return is_quantized(traits.output) ? DType::f32 : traits.output;
}

std::string epilogue_constants(const GemmTraits& traits) {
  return std::string("  static constexpr kiln::Scale kScaleA = kiln::Scale::") +
         name_of(kScaleANames, traits.scale_a) +
         ", kScaleB = kiln::Scale::" + name_of(kScaleBNames, traits.scale_b) + ";\n" +
         "  static constexpr kiln::Gate kGate = kiln::Gate::" +
         (traits.gate == Gate::none ? "none" : name_of(kGateNames, traits.gate)) + ";\n" +
         "  static constexpr kiln::Grouping kGrouping = kiln::Grouping::" +
         name_of(kGroupingNames, traits.grouping) + ";\n";
}

std::string render_gemm(const Specialization& spec, const UserTexts& texts) {
  const auto traits = spec.traits_as<GemmTraits>();
  const GemmConfig& config = gemm_config(spec.row());
  auto major = [](Major m) { return m == Major::k ? "kiln::Major::k" : "kiln::Major::mn"; };
  SourceText text;
  text << "#include \"/kiln/gemm/gemm.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  using Accumulator = "
       << (traits.accumulator == Accumulator::f16 ? "kiln::f16" : "float") << ";\n"
       << "  using Bias = " << type_or(traits.bias, absent_type(traits)) << ";\n"
       << "  using Residual = " << type_or(traits.residual, absent_type(traits)) << ";\n"
       << "  static constexpr kiln::Major kMajorA = " << major(traits.major_a) << ";\n"
       << "  static constexpr kiln::Major kMajorB = " << major(traits.major_b) << ";\n"
       << "  static constexpr int kBlockM = " << config.block_m << ", kBlockN = " << config.block_n
       << ", kBlockK = " << config.block_k << ";\n"
       << "  static constexpr int kStages = " << config.stages << ", kWarpsM = " << config.warps_m
       << ", kWarpsN = " << config.warps_n << ";\n"
       << "  static constexpr bool kAlignedLoads = " << boolean(traits.loads == Access::vectors)
       << ", kAlignedStores = " << boolean(traits.stores == Access::vectors) << ";\n"
       << "  static constexpr bool kOverlaps = " << boolean(may_overlap(spec.arch())) << ";\n"
       << epilogue_constants(traits) << "};\n"
       << gemm_epilogue(traits, texts) << "\n"
       << "extern \"C\" __global__ void __launch_bounds__(Config::kWarpsM * Config::kWarpsN * 32, "
       // Without the 1, ptxas aims for more CTAs than shared memory admits, and spills.
       << "1)\n"
       << kEntryName << "(const __grid_constant__ "
       << gemm_arguments("kiln::GemmParams", traits, texts) << " args) {\n"
       << "  kiln::gemm<Config, Epilogue>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
