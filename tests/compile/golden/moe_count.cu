#include "/kiln/moe_permute/permute.cuh"

struct Config {
  using Index = int;
  static constexpr int kAccess = 16;
  static constexpr bool kOverlaps = true;
};

extern "C" __global__ void __launch_bounds__(kiln::kPermuteThreads, 1)
kiln_kernel(const __grid_constant__ kiln::PermuteParams args) {
  kiln::moe_count<Config>(args);
}
