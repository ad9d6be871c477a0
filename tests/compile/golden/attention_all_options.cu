#include "/kiln/attention/flash_attention.cuh"

struct Config {
  using Element = kiln::bf16;
  static constexpr int kHeadDim = 192;
  static constexpr int kHeadDimV = 128;
  static constexpr int kBlockQ = 64;
  static constexpr int kBlockKv = 32;
  static constexpr int kWarps = 4, kTeams = 1, kPartners = 1, kStages = 1;
  static constexpr bool kPacked = false, kSplits = false;
  static constexpr bool kAligned = false;
};
using Variant = kiln::Variants<kiln::Softcap, kiln::Alibi<false>, kiln::BiasTensor<float, true>, kiln::Window, kiln::Sinks<kiln::bf16>>;

extern "C" __global__ void __launch_bounds__(Config::kWarps * 32, 1)
kiln_kernel(const __grid_constant__ kiln::AttentionArgs<Variant> args) {
  kiln::flash_attention<Config, Variant>(args);
}
