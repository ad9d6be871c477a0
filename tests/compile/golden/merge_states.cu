#include "/kiln/merge_states/merge_states.cuh"

struct Config {
  using Input = kiln::f16;
  using Output = float;
  using Sink = kiln::bf16;
  static constexpr bool kSinks = true;
  static constexpr int kVector = 8, kLanes = 16, kVectors = 2, kParts = 2;
};

extern "C" __global__ void __launch_bounds__(kiln::kMergeThreads, 1)
kiln_kernel(const __grid_constant__ kiln::MergeParams args) {
  kiln::merge_states<Config>(args);
}
