// Makes the plan of a launch of the sm_90a kernel whose CTAs share the keys of query tiles: the
// pieces that each CTA has. Launches of the same lengths then read a few words of it instead of all
// lengths, in every layer of a step.
//
// A rendered kernel calls plan_attention_shares<Variant>(args). The grid is that of the launch that
// will read the plan, with a warp for each of its CTAs.
#pragma once
#include "/kiln/attention/builtin_variants.cuh"
#include "/kiln/attention/sm90/planned_piece.cuh"
#include "/kiln/attention/sm90/sequence_shares.cuh"
#include "/kiln/base/launches.cuh"

namespace kiln {

struct PlannedTileSize {
  const AttentionVarlenParams& p;
  u32 words[kKeptWords] = {};
  __device__ __forceinline__ int block_q() const { return p.plan_block_q; }
  __device__ __forceinline__ int block_kv() const { return p.plan_block_kv; }
  __device__ __forceinline__ void keep(KeptWord word, u32 value) {
    words[static_cast<u32>(word)] = value;
  }
  __device__ __forceinline__ u32 kept(KeptWord word) const { return words[static_cast<u32>(word)]; }
};

template <class Variant>
__device__ __forceinline__ void plan_attention_shares(const AttentionVarlenArgs<Variant>& args) {
  let_dependents_begin();  // the launch that plans the call's decoding is one
  const AttentionVarlenParams& params = args.params();
  SequenceShares<PlannedTileSize, Variant> shares(params, args.variant(), {params});
  SequencePiece piece;
  const bool leads = threadIdx.x == 0;
  u32 count = 0;
#pragma unroll 1
  while (count <= kAttentionPlannedPieces && shares.take(piece)) {
    if (leads && count < kAttentionPlannedPieces) {
      store_planned_piece(params, count, piece);
    }
    ++count;
  }
  if (leads) store_planned_count(params, count);
}

}  // namespace kiln
