#include "/kiln/gemm/gemm.cuh"

struct Config {
  using Input = kiln::bf16;
  using Output = kiln::bf16;
  using Accumulator = float;
  using Bias = kiln::bf16;
  using Residual = kiln::bf16;
  static constexpr kiln::Major kMajorA = kiln::Major::k;
  static constexpr kiln::Major kMajorB = kiln::Major::k;
  static constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 64;
  static constexpr int kStages = 3, kWarpsM = 2, kWarpsN = 2;
  static constexpr bool kAlignedLoads = true, kAlignedStores = true;
  static constexpr bool kOverlaps = true;
  static constexpr kiln::Scale kScaleA = kiln::Scale::none, kScaleB = kiln::Scale::none;
  static constexpr kiln::Gate kGate = kiln::Gate::none;
  static constexpr kiln::Grouping kGrouping = kiln::Grouping::none;
};
struct Epilogue {
  static constexpr bool kBias = true, kResidual = false;
  __device__ __forceinline__ float operator()(float acc, float bias, float residual,
                                              int row, int col, int batch) const {
    return
#line 1 "gemm epilogue"
(
#line 1 "gemm epilogue"
acc * bias + 0.5f * row
);
#line 1 "kernel.cu"
  }
};

extern "C" __global__ void __launch_bounds__(Config::kWarpsM * Config::kWarpsN * 32, 1)
kiln_kernel(const __grid_constant__ kiln::GemmParams args) {
  kiln::gemm<Config, Epilogue>(args);
}
