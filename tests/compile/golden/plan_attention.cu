#include "/kiln/attention/varlen/plan.cuh"

struct Config {
  static constexpr bool kSpread = true, kOverlaps = true;
};
using Variant = kiln::Variants<kiln::Window>;

extern "C" __global__ void __launch_bounds__(32)
kiln_kernel(const __grid_constant__ kiln::AttentionVarlenArgs<Variant> args) {
  kiln::plan_attention<Config, Variant>(args);
}
