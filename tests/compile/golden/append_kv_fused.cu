#include "/kiln/append_kv/append_kv.cuh"

struct Config {
  using Input = kiln::f16;
  using Cache = kiln::f8_e4m3;
  using Weight = kiln::bf16;
  using Table = kiln::f16;
  static constexpr int kDim = 192, kDimV = 128, kRotary = 64;
  static constexpr bool kQuery = true, kNorm = true, kInterleaved = true, kSequences = false;
  static constexpr int kVector = 8, kRows = 4, kAhead = 2;
  static constexpr bool kHardware = true;
};

extern "C" __global__ void __launch_bounds__(kiln::kAppendThreads, 7)
kiln_kernel(const __grid_constant__ kiln::AppendParams args) {
  kiln::append_kv<Config>(args);
}
