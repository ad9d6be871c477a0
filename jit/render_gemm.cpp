#include "jit/render_parts.h"

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
         << "Epilogue<kiln::Activation::" << name(activation_of_gates(traits.activation))
         << ", /*kBias=*/" << boolean(bias) << ", /*kResidual=*/" << boolean(residual) << ">;\n";
    return text.str();
  }
  text << "struct Epilogue {\n"
       << "  static constexpr bool kBias = " << boolean(bias)
       << ", kResidual = " << boolean(residual) << ";\n"
       << "  __device__ __forceinline__ float operator()(float acc, float bias, float residual,\n"
       << "                                              int row, int col, int batch) const {\n"
       << "    return (\n#line 1 \"gemm epilogue\"\n"
       << texts.epilogue << "\n);\n#line 1 \"kernel.cu\"\n  }\n};\n";
  return text.str();
}

std::string type_or(DType dtype, DType otherwise) {
  return device_type(dtype == DType::none ? otherwise : dtype);
}

const char* name(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
    case Activation::swiglu:
      return "swiglu";
    case Activation::geglu:
      return "geglu";
    case Activation::geglu_tanh:
      return "geglu_tanh";
  }
  return "none";
}

const char* name(Gate gate) {
  switch (gate) {
    case Gate::none:
      return "none";
    case Gate::halves:
      return "halves";
    case Gate::interleaved:
      return "interleaved";
  }
  return "none";
}

const char* name(Access access) {
  switch (access) {
    case Access::elements:
      return "elements";
    case Access::boxes:
      return "boxes";
    case Access::vectors:
      return "vectors";
  }
  return "elements";
}

const char* name(Scale scale) {
  switch (scale) {
    case Scale::none:
      return "none";
    case Scale::tensor:
      return "tensor";
    case Scale::vector:
      return "vector";
  }
  return "none";
}

std::string epilogue_constants(const GemmTraits& traits) {
  return std::string("  static constexpr kiln::Scale kScaleA = kiln::Scale::") +
         name(traits.scale_a) + ", kScaleB = kiln::Scale::" + name(traits.scale_b) + ";\n" +
         "  static constexpr kiln::Gate kGate = kiln::Gate::" + name(traits.gate) + ";\n";
}

std::string layout_name(const GemmTraits& traits) {
  return std::string(traits.major_a == Major::k ? "n" : "t") +
         (traits.major_b == Major::k ? "t" : "n");
}

std::string render_gemm(const GemmTraits& traits, const GemmConfig& config,
                        const UserTexts& texts) {
  if (config.is_sm90()) return render_gemm_sm90(traits, config, texts);
  auto major = [](Major m) { return m == Major::k ? "kiln::Major::k" : "kiln::Major::mn"; };
  SourceText text;
  text << "#include \"/kiln/gemm/gemm.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  using Accumulator = "
       << (traits.accumulator == Accumulator::f16 ? "kiln::f16" : "float") << ";\n"
       << "  using Bias = " << type_or(traits.bias, traits.output) << ";\n"
       << "  using Residual = " << type_or(traits.residual, traits.output) << ";\n"
       << "  static constexpr kiln::Major kMajorA = " << major(traits.major_a) << ";\n"
       << "  static constexpr kiln::Major kMajorB = " << major(traits.major_b) << ";\n"
       << "  static constexpr int kBlockM = " << config.block_m << ", kBlockN = " << config.block_n
       << ", kBlockK = " << config.block_k << ";\n"
       << "  static constexpr int kStages = " << config.stages << ", kWarpsM = " << config.warps_m
       << ", kWarpsN = " << config.warps_n << ";\n"
       << "  static constexpr bool kAlignedLoads = " << boolean(traits.loads == Access::vectors)
       << ", kAlignedStores = " << boolean(traits.stores == Access::vectors) << ";\n"
       << epilogue_constants(traits) << "};\n"
       << gemm_epilogue(traits, texts) << "\n"
       << "extern \"C\" __global__ void __launch_bounds__(Config::kWarpsM * Config::kWarpsN * 32, "
       // Without the 1, ptxas aims for more CTAs than shared memory admits, and spills.
       << "1)\n"
       << kEntryName << "(const __grid_constant__ kiln::GemmParams args) {\n"
       << "  kiln::gemm<Config, Epilogue>(args);\n}\n";
  return text.str();
}

std::string describe_gemm(const GemmTraits& traits, const GemmConfig& config,
                          const UserTexts& texts) {
  std::string text = std::string("gemm ") + name(traits.input);
  if (traits.input_b != DType::none) text += std::string(" x ") + name(traits.input_b);
  text += " " + layout_name(traits);
  if (traits.output != traits.input) text += std::string(" -> ") + name(traits.output);
  if (traits.accumulator == Accumulator::f16) text += " accumulating float16";
  if (traits.fast) text += " fast";
  if (traits.scale_a != Scale::none) text += std::string(" scale_a ") + name(traits.scale_a);
  if (traits.scale_b != Scale::none) text += std::string(" scale_b ") + name(traits.scale_b);
  if (traits.bias != DType::none) text += " bias";
  if (traits.activation != Activation::none) text += std::string(" ") + name(traits.activation);
  if (traits.gate == Gate::interleaved) text += " interleaved";
  if (traits.residual != DType::none) text += " residual";
  if (!texts.epilogue.empty()) text += " epilogue \"" + std::string(texts.epilogue) + "\"";
  if (traits.loads == Access::elements) text += " unaligned loads";
  if (traits.stores == Access::elements) text += " unaligned stores";
  if (traits.stores == Access::boxes) text += " boxed stores";
  return text + ", tile " + tile_name(config);
}

}  // namespace kiln
