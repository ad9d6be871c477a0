#include "/kiln/moe_route/route.cuh"

struct Config {
  using Input = float;
  using Bias = kiln::bf16;
  static constexpr kiln::Scoring kScoring = kiln::Scoring::sigmoid;
  static constexpr bool kBias = true;
  static constexpr int kExperts = 256;
};

extern "C" __global__ void __launch_bounds__(kiln::kRouteThreads, 1)
kiln_kernel(const __grid_constant__ kiln::RouteParams args) {
  kiln::moe_route<Config>(args);
}
