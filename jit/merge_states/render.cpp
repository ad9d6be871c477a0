#include "jit/merge_states/render.h"

#include "jit/merge_states/config.h"
#include "jit/op/source_text.h"

namespace kiln {

std::string render_merge_states(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<MergeTraits>();
  const MergeConfig& config = merge_configs()[static_cast<std::size_t>(spec.row())];
  SourceText text;
  text << "#include \"/kiln/merge_states/merge_states.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  using Sink = " << type_or(traits.sinks, DType::f32) << ";\n"
       << "  static constexpr bool kSinks = " << boolean(traits.sinks != DType::none) << ";\n"
       << "  static constexpr int kVector = " << static_cast<int>(traits.vector)
       << ", kLanes = " << config.lanes << ", kVectors = " << config.vectors
       << ", kParts = " << config.parts << ";\n"
       << "};\n\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kMergeThreads, 1)\n"
       << kEntryName << "(const __grid_constant__ kiln::MergeParams args) {\n"
       << "  kiln::merge_states<Config>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
