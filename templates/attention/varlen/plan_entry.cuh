// The entries of a plan, which one launch writes and others read, see plan.cuh.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/base/types.cuh"

namespace kiln {

// In 16-byte words, of which a CTA's first begins with the plan's key.
struct PlanEntry {
  uint4 words[kAttentionPlanWords / 4];
};

// The `index`-th entry of the launch.
__device__ __forceinline__ uint4* plan_entry_at(const AttentionVarlenParams& p, u32 index) {
  return reinterpret_cast<uint4*>(p.plan) + (p.plan_begin + index) * (kAttentionPlanWords / 4);
}
__device__ __forceinline__ PlanEntry load_plan_entry(const AttentionVarlenParams& p, u32 index) {
  const uint4* const words = plan_entry_at(p, index);
  return {{__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)}};
}
// Called by one thread.
__device__ __forceinline__ void store_plan_entry(const AttentionVarlenParams& p, u32 index,
                                                 const PlanEntry& entry) {
#pragma unroll
  for (int i = 0; i < kAttentionPlanWords / 4; ++i) plan_entry_at(p, index)[i] = entry.words[i];
}

// Word 0 or 1 of the key of the call.
__device__ __forceinline__ u32 plan_key_word(const AttentionVarlenParams& p, int i) {
  return static_cast<u32>(i == 0 ? p.plan_key : p.plan_key >> 32);
}
// Requires that the launch that made the plan was told of the same heads, masks, bounds and tiles.
// `head`: of a CTA's first entry.
__device__ __forceinline__ void check_plan_key(const AttentionVarlenParams& p, const uint4& head) {
  if (head.x != plan_key_word(p, 0) || head.y != plan_key_word(p, 1)) __trap();
}

}  // namespace kiln
