// The closed table of the kernels that choose experts.
#include "jit/moe_route/config.h"

namespace kiln {
namespace {

// In the order of the experts: the first that has enough serves.
constexpr RouteConfig kRouteConfigs[] = {
    {.experts = 256, .reason = "up to 256 experts, eight for each lane of a token's warp"},
    {.experts = 512, .reason = "up to 512 experts"},
};

}  // namespace

std::span<const RouteConfig> route_configs() { return kRouteConfigs; }

}  // namespace kiln
