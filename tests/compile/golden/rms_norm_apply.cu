#include "/kiln/norm/split.cuh"

struct Config {
  using Input = kiln::bf16;
  using Output = kiln::bf16;
  using Weight = kiln::bf16;
  using Bias = kiln::bf16;
  static constexpr kiln::Norm kNorm = kiln::Norm::rms;
  static constexpr kiln::Activation kActivation = kiln::Activation::none;
  static constexpr bool kWeight = true, kBias = false, kResidual = true;
  static constexpr int kVector = 8, kVectors = 2, kThreadsPerRow = 256;
  static constexpr int kRowsPerBlock = 1, kCluster = 1, kStages = 0;
  static constexpr bool kEarlyWeights = true, kOverlaps = true;
};

extern "C" __global__ void __launch_bounds__(Config::kThreadsPerRow * Config::kRowsPerBlock, 1)
kiln_kernel(const __grid_constant__ kiln::NormParams args) {
  kiln::norm_apply<Config>(args);
}
