#include "/kiln/gemm/gemm.cuh"

struct Config {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  using Bias = float;
  using Residual = float;
  static constexpr kiln::Major kMajorA = kiln::Major::mn;
  static constexpr kiln::Major kMajorB = kiln::Major::mn;
  static constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 32;
  static constexpr int kStages = 3, kWarpsM = 2, kWarpsN = 2;
  static constexpr bool kAlignedLoads = false, kAlignedStores = false;
  static constexpr bool kOverlaps = true;
  static constexpr kiln::Scale kScaleA = kiln::Scale::none, kScaleB = kiln::Scale::none;
  static constexpr kiln::Gate kGate = kiln::Gate::none;
  static constexpr kiln::Grouping kGrouping = kiln::Grouping::none;
};
using Epilogue = kiln::StandardEpilogue<kiln::Activation::none, /*kBias=*/false, /*kResidual=*/false>;

extern "C" __global__ void __launch_bounds__(Config::kWarpsM * Config::kWarpsN * 32, 1)
kiln_kernel(const __grid_constant__ kiln::GemmParams args) {
  kiln::gemm<Config, Epilogue>(args);
}
