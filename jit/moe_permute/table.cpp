// The launches of a call that sorts rows by experts.
#include "jit/moe_permute/config.h"

namespace kiln {
namespace {

constexpr LaunchConfig kLaunches[] = {
    {.launch = 1, .tile = "count", .reason = "more pairs than each CTA should count by itself"},
    {.launch = 2, .tile = "sort", .reason = "of any number of pairs"},
};

}  // namespace

std::span<const LaunchConfig> permute_launches() { return kLaunches; }

}  // namespace kiln
