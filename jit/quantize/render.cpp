#include "jit/quantize/render.h"

#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "jit/op/source_text.h"
#include "jit/quantize/config.h"

namespace kiln {
namespace {

// What is applied to the gates.
const char* gate_name(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "silu";
    case Activation::geglu:
      return "gelu";
    case Activation::geglu_tanh:
      return "gelu_tanh";
    default:
      return "none";
  }
}

}  // namespace

std::string render_quantize(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<QuantizeTraits>();
  const QuantizeConfig& config = quantize_configs()[static_cast<std::size_t>(spec.row())];
  // Only 8-bit floats differ by the arch: other kernels have one source, and so one key, for all.
  const bool hardware =
      is_f8(traits.output) && arch_table()[static_cast<std::size_t>(spec.arch())].number >= 89;
  SourceText text;
  text << "#include \"/kiln/quantize/quantize.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  static constexpr kiln::Activation kGate = kiln::Activation::"
       << gate_name(traits.activation) << ";\n"
       << "  static constexpr bool kPowerOfTwo = " << boolean(traits.power_of_two)
       << ", kCounts = " << boolean(traits.counts) << ", kTurns = " << boolean(config.turns)
       << ", kKeeps = " << boolean(config.keeps) << ", kHardware = " << boolean(hardware) << ";\n"
       << "  static constexpr int kVector = " << static_cast<int>(traits.vector)
       << ", kLanes = " << config.lanes << ", kCluster = " << config.cluster
       << ", kVectors = " << config.vectors << ";\n"
       << (traits.byte_scales ? "  static constexpr bool kByteScales = true;\n" : "") << "};\n\n"
       << "extern \"C\" __global__ void\n__launch_bounds__(kiln::quantize_threads(Config::kLanes), "
          "1)\n"
       << kEntryName << "(const __grid_constant__ kiln::QuantizeParams args) {\n"
       << "  kiln::quantize_groups<Config>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
