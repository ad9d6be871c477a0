#include "/kiln/gemm/gemm.cuh"

struct Config {
  using Input = kiln::f16;
  using Output = float;
  using Accumulator = kiln::f16;
  using Bias = float;
  using Residual = kiln::bf16;
  static constexpr kiln::Major kMajorA = kiln::Major::k;
  static constexpr kiln::Major kMajorB = kiln::Major::mn;
  static constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 64;
  static constexpr int kStages = 3, kWarpsM = 2, kWarpsN = 2;
  static constexpr bool kAlignedLoads = true, kAlignedStores = true;
  static constexpr bool kOverlaps = true;
  static constexpr kiln::Scale kScaleA = kiln::Scale::none, kScaleB = kiln::Scale::none;
  static constexpr kiln::Gate kGate = kiln::Gate::none;
  static constexpr kiln::Grouping kGrouping = kiln::Grouping::none;
};
using Epilogue = kiln::StandardEpilogue<kiln::Activation::gelu_tanh, /*kBias=*/true, /*kResidual=*/true>;

extern "C" __global__ void __launch_bounds__(Config::kWarpsM * Config::kWarpsN * 32, 1)
kiln_kernel(const __grid_constant__ kiln::GemmParams args) {
  kiln::gemm<Config, Epilogue>(args);
}
