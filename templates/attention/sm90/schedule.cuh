// Selects the query tiles that a CTA of the persistent kernel computes, and their order.
//
// Tiles are listed with the last rows of all heads of a group first, as a causal mask makes these
// the slowest, and are dealt to the CTAs back and forth: a CTA that got the slowest tile of one
// round gets the fastest of the next. Their sums then differ by less than a tile. A group is as
// many heads as the host finds to fill whole rounds; CTAs of one head read its keys at the same
// time, so these come from L2.
#pragma once
#include "/kiln/attention/sm90/query_tile.cuh"

namespace kiln {

template <int kBlockQ>
class QueryTiles {
 public:
  __device__ __forceinline__ explicit QueryTiles(const AttentionParams& params)
      : p_(params),
        heads_(static_cast<u32>(params.batch) * params.heads),
        tiles_(ceil_div(params.len_q, kBlockQ)),
        index_(blockIdx.x) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < heads_ * tiles_; }

  __device__ __forceinline__ QueryTile tile() const {
    const u32 together = static_cast<u32>(p_.heads_together);
    const u32 group = index_ / (together * tiles_);
    const u32 first_head = group * together, width = min(together, heads_ - first_head);
    const u32 in_group = index_ - first_head * tiles_;
    const u32 head = first_head + in_group % width;
    const int h = static_cast<int>(head % p_.heads);
    return {p_, static_cast<int>(head / p_.heads), h, h / (p_.heads / p_.heads_kv),
            static_cast<int>(tiles_ - 1 - in_group / width) * kBlockQ};
  }

  // The next round is dealt in the other direction.
  __device__ __forceinline__ void advance() {
    const u32 place = index_ - round_;
    round_ += gridDim.x;
    index_ = round_ + gridDim.x - 1 - place;
  }

 private:
  const AttentionParams& p_;
  u32 heads_, tiles_, index_, round_ = 0;
};

}  // namespace kiln
