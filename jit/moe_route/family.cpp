#include "jit/moe_route/family.h"

#include <cstddef>

#include "jit/moe_route/config.h"
#include "jit/moe_route/problem.h"
#include "jit/moe_route/render.h"
#include "templates/moe_route/params.h"

namespace kiln {
namespace {

constexpr Field kRouteFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(RouteTraits, input),
     .values = kFloatNames,
     .otherwise = "float32",
     .help = "of logits",
     .says = " {}",
     .when = Says::always},
    {.name = "scoring",
     .kind = FieldKind::choice,
     .offset = offsetof(RouteTraits, scoring),
     .values = kScoringNames,
     .otherwise = "softmax",
     .help = "what makes scores of logits",
     .says = " {}",
     .when = Says::always},
    {.name = "bias",
     .kind = FieldKind::choice,
     .offset = offsetof(RouteTraits, bias),
     .values = kFloatNames,
     .help = "dtype of the bias; null = none",
     .says = " bias {}",
     .when = Says::when_set,
     .null_if_unset = true},
};

constexpr Field kRouteRowFields[] = {
    {.name = "experts",
     .kind = FieldKind::integer,
     .offset = offsetof(RouteConfig, experts),
     .help = "the most experts of a call"},
};

const RouteConfig& route_config_at(int row) {
  return route_configs()[static_cast<std::size_t>(row)];
}

constexpr Template kRouteTemplates[] = {
    {.family = &kMoeRoute,
     .path = "portable",
     .file = "moe_route/route.cuh",
     .means = "one launch, a warp for each token",
     .row_fields = kRouteRowFields,
     .row = [](int row) -> const void* { return &route_config_at(row); },
     .tile = [](int row) { return std::to_string(route_config_at(row).experts); },
     .reason = [](int row) { return route_config_at(row).reason; },
     .footprint = [](const Specialization&) { return Footprint{kRouteThreads, 0}; },
     .render = render_route}};

std::vector<Specialization> route_kernels(const Traits& words, int arch, Kernels) {
  std::vector<Specialization> specs;
  for (int row = 0; row < static_cast<int>(route_configs().size()); ++row) {
    specs.emplace_back(route_template(), arch, row, as<RouteTraits>(words));
  }
  return specs;
}

// Each scoring and dtype, with a bias and without.
std::vector<Specialization> route_samples(int arch) {
  RouteTraits base, sigmoid, half, both;
  sigmoid.scoring = MoeScoring::sigmoid, sigmoid.bias = DType::f32;
  half.input = DType::f16, half.scoring = MoeScoring::sigmoid;
  both.input = DType::bf16, both.bias = DType::bf16;
  return {Specialization(route_template(), arch, 0, base),
          Specialization(route_template(), arch, 0, sigmoid),
          Specialization(route_template(), arch, 1, half),
          Specialization(route_template(), arch, 2, sigmoid),
          Specialization(route_template(), arch, 3, both)};
}

}  // namespace

const Template& route_template() { return kRouteTemplates[0]; }

constinit const Family kMoeRoute = {.name = "moe_route",
                                    .title = "choosing experts",
                                    .templates = kRouteTemplates,
                                    .fields = kRouteFields,
                                    .kernels = route_kernels,
                                    .samples = route_samples};

}  // namespace kiln
