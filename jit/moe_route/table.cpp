// The closed table of the kernels that choose experts.
#include "jit/moe_route/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the experts: the first that has enough serves.
constexpr RouteConfig kRouteConfigs[] = {
    {.experts = 64, .reason = "up to 64 experts, two for each lane of a token's warp: 4096 tokens choose 2 of 8 in 5.25 us, 5.8 with room for 128, 7.3 for 256"},
    {.experts = 128, .reason = "up to 128 experts: 16384 tokens choose 8 in 14.1 us, 21.2 with room for 256"},
    {.experts = 256, .reason = "up to 256 experts: 4096 tokens choose 8 in 7.6 us"},
    {.experts = 512, .reason = "up to 512 experts: 4096 tokens choose 10 in 9.5 us"},
};
// clang-format on

}  // namespace

std::span<const RouteConfig> route_configs() { return kRouteConfigs; }

}  // namespace kiln
