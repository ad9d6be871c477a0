#include "/kiln/attention/varlen/flash_attention.cuh"

struct Config {
  using Element = kiln::bf16;
  static constexpr int kHeadDim = 128;
  static constexpr int kHeadDimV = 128;
  static constexpr int kBlockQ = 16;
  static constexpr int kBlockKv = 16;
  static constexpr int kWarps = 4, kTeams = 4, kPartners = 1, kStages = 3;
  static constexpr bool kPacked = true, kSplits = true;
  static constexpr bool kAligned = true;
  static constexpr bool kPaged = false, kSpread = false, kOverlaps = true;
  using OutElement = kiln::f8_e4m3;
  static constexpr bool kHardware = true;
};
using Variant = kiln::Variants<kiln::Causal>;

extern "C" __global__ void __launch_bounds__(Config::kWarps * 32, 1)
kiln_kernel(const __grid_constant__ kiln::AttentionVarlenArgs<Variant> args) {
  kiln::flash_attention_varlen<Config, Variant>(args);
}
