#include "jit/moe_route/render.h"

#include "jit/moe_route/config.h"
#include "jit/moe_route/problem.h"
#include "jit/op/source_text.h"

namespace kiln {

std::string render_route(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<RouteTraits>();
  const RouteConfig& config = route_configs()[static_cast<std::size_t>(spec.row())];
  SourceText text;
  text << "#include \"/kiln/moe_route/route.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Bias = " << type_or(traits.bias, DType::f32) << ";\n"
       << "  static constexpr kiln::Scoring kScoring = kiln::Scoring::"
       << name_of(kScoringNames, traits.scoring) << ";\n"
       << "  static constexpr bool kBias = " << boolean(traits.bias != DType::none) << ";\n"
       << "  static constexpr int kExperts = " << config.experts << ";\n"
       << "};\n\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kRouteThreads, 1)\n"
       << kEntryName << "(const __grid_constant__ kiln::RouteParams args) {\n"
       << "  kiln::moe_route<Config>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
