#include "jit/moe_permute/render.h"

#include "jit/moe_permute/problem.h"
#include "jit/op/arch.h"
#include "jit/op/source_text.h"

namespace kiln {
namespace {

std::string render_launch(const Specialization& spec, const char* function) {
  const auto traits = spec.traits_as<PermuteTraits>();
  const bool overlaps = may_overlap(spec.arch());
  SourceText text;
  text << "#include \"/kiln/moe_permute/permute.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Index = " << (traits.index == DType::i64 ? "kiln::i64" : "int") << ";\n"
       << "  static constexpr int kAccess = " << static_cast<int>(traits.access) << ";\n"
       << "  static constexpr bool kOverlaps = " << boolean(overlaps) << ";\n"
       << "};\n\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kPermuteThreads, 1)\n"
       << kEntryName << "(const __grid_constant__ kiln::PermuteParams args) {\n"
       << "  kiln::" << function << "<Config>(args);\n}\n";
  return text.str();
}

}  // namespace

std::string render_count(const Specialization& spec, const UserTexts&) {
  return render_launch(spec, "moe_count");
}
std::string render_sort(const Specialization& spec, const UserTexts&) {
  return render_launch(spec, "moe_permute");
}

std::string render_unpermute(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<UnpermuteTraits>();
  SourceText text;
  text << "#include \"/kiln/moe_permute/unpermute.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  static constexpr bool kWeights = " << boolean(traits.weights) << ";\n"
       << "  static constexpr int kVector = " << static_cast<int>(traits.vector) << ";\n"
       << "};\n\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kUnpermuteThreads, 1)\n"
       << kEntryName << "(const __grid_constant__ kiln::UnpermuteParams args) {\n"
       << "  kiln::moe_unpermute<Config>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
