#include "/kiln/moe_permute/unpermute.cuh"

struct Config {
  using Input = kiln::bf16;
  using Output = float;
  static constexpr bool kWeights = true;
  static constexpr int kVector = 8;
};

extern "C" __global__ void __launch_bounds__(kiln::kUnpermuteThreads, 1)
kiln_kernel(const __grid_constant__ kiln::UnpermuteParams args) {
  kiln::moe_unpermute<Config>(args);
}
