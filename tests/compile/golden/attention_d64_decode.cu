#include "/kiln/attention/flash_attention.cuh"

struct Config {
  using Element = kiln::f16;
  static constexpr int kHeadDim = 64;
  static constexpr int kHeadDimV = 64;
  static constexpr int kBlockQ = 16;
  static constexpr int kBlockKv = 32;
  static constexpr int kWarps = 4, kTeams = 4, kPartners = 1, kStages = 3;
  static constexpr bool kPacked = true, kSplits = true;
  static constexpr bool kAligned = true;
};
using Variant = kiln::Variants<>;

extern "C" __global__ void __launch_bounds__(Config::kWarps * 32, 1)
kiln_kernel(const __grid_constant__ kiln::AttentionArgs<Variant> args) {
  kiln::flash_attention<Config, Variant>(args);
}
