#include "/kiln/norm/norm.cuh"

struct Config {
  using Input = kiln::f16;
  using Output = float;
  using Weight = kiln::bf16;
  using Bias = float;
  static constexpr kiln::Norm kNorm = kiln::Norm::layer;
  static constexpr kiln::Activation kActivation = kiln::Activation::gelu;
  static constexpr bool kWeight = true, kBias = true, kResidual = false;
  static constexpr int kVector = 8, kVectors = 4, kThreadsPerRow = 512;
  static constexpr int kRowsPerBlock = 1, kCluster = 4, kStages = 2;
  static constexpr bool kEarlyWeights = false;
};

extern "C" __global__ void __launch_bounds__(Config::kThreadsPerRow * Config::kRowsPerBlock, 2)
kiln_kernel(const __grid_constant__ kiln::NormParams args) {
  kiln::norm<Config>(args);
}
