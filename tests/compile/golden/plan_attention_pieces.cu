#include "/kiln/attention/sm90/plan_shares.cuh"

using Variant = kiln::Variants<kiln::Causal>;

extern "C" __global__ void __launch_bounds__(32)
kiln_kernel(const __grid_constant__ kiln::AttentionVarlenArgs<Variant> args) {
  kiln::plan_attention_shares<Variant>(args);
}
