// Makes the plan of a launch over sequences: where the share of each of its CTAs begins. Launches
// of the same lengths then read a few words of it instead of all lengths, in every layer of a step.
//
// A rendered kernel calls plan_attention<Config>(args) with a Config of
//   kSpread, kOverlaps   as flash_attention.cuh's
// The grid is that of the launch that will read the plan, with a warp for each of its CTAs.
#pragma once
#include "/kiln/attention/builtin_variants.cuh"
#include "/kiln/attention/varlen/deal.cuh"
#include "/kiln/attention/varlen/spread.cuh"
#include "/kiln/base/launches.cuh"

namespace kiln {

template <class Config>
struct PlannedShape {
  static constexpr bool kSpread = Config::kSpread;
  const AttentionVarlenParams& p;
  __device__ __forceinline__ int block_q() const { return p.plan_block_q; }
  __device__ __forceinline__ int block_kv() const { return p.plan_block_kv; }
  __device__ __forceinline__ int step_keys() const { return p.plan_step_keys; }
};

template <class Config, class Variant>
class Planner : public Deal<PlannedShape<Config>, Variant> {
 public:
  __device__ __forceinline__ Planner(const AttentionVarlenParams& params, const Variant& variant)
      : Deal<PlannedShape<Config>, Variant>(params, variant, {params}) {}
};

template <class Config, class Variant>
__device__ __forceinline__ void plan_shares(const AttentionVarlenParams& params,
                                            const Variant& variant) {
  Planner<Config, Variant> planner(params, variant);
  planner.begin();
  if (threadIdx.x == 0) store_plan_entry(params, blockIdx.x, planner.entry());
}

template <class Config, class Variant>
__device__ __forceinline__ void plan_attention(const AttentionVarlenArgs<Variant>& args) {
  const AttentionVarlenParams& params = args.params();
  if constexpr (Config::kSpread) {
    plan_shares<Config>(params, SpreadVariant<Variant>(args.variant(), params.spread));
  } else {
    plan_shares<Config>(params, args.variant());
  }
  wait_for_launches<Config::kOverlaps>();
}

}  // namespace kiln
