#include "/kiln/append_kv/append_kv.cuh"

struct Config {
  using Input = kiln::bf16;
  using Cache = kiln::bf16;
  using Weight = float;
  using Table = float;
  static constexpr int kDim = 128, kDimV = 128, kRotary = 0;
  static constexpr bool kQuery = false, kNorm = false, kInterleaved = false, kSequences = false;
  static constexpr int kVector = 8, kRows = 1, kAhead = 1;
  static constexpr bool kHardware = false;
};

extern "C" __global__ void __launch_bounds__(kiln::kAppendThreads, 7)
kiln_kernel(const __grid_constant__ kiln::AppendParams args) {
  kiln::append_kv<Config>(args);
}
