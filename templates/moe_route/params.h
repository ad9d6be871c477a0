// The run-time arguments of the kernel that chooses the experts of tokens, and its launch
// arithmetic, shared by host and device.
#pragma once

namespace kiln {

struct RouteParams {
  const void* logits;  // [tokens, experts]
  const void* bias;    // [experts]; unused unless Config::kBias
  float* weights;      // [tokens, top_k]
  int* chosen;         // [tokens, top_k]
  long long logits_row, bias_stride;
  long long weights_row, weights_k, chosen_row, chosen_k;
  int tokens, experts, top_k;  // each at least 1; top_k at most experts and kMostRoutes
  int groups, top_groups;      // groups divide the experts; all groups: nothing is limited
  int renormalize;
  float scale;
  int reserved;
};
static_assert(sizeof(RouteParams) % 8 == 0, "keep the argument block a whole number of words");

constexpr int kRouteThreads = 128;
constexpr int kMostRoutes = 32;  // of a token, and groups: a lane of its warp has one

// Each warp has a token.
constexpr long long route_blocks(long long tokens) {
  const int warps = kRouteThreads / 32;
  return (tokens + warps - 1) / warps;
}

}  // namespace kiln
