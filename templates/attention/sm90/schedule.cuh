// Selects the query tiles that a CTA of the persistent kernel computes, and their order.
//
// Where a causal mask makes a head's last tiles the slowest, the heads are dealt in twos: the
// slowest tile of the one with the fastest of the other, and so on, which cost the same. The CTAs
// then compute few heads at a time, whose keys stay in L2. The pairs do not fill whole rounds. So
// the tiles of the last heads are sorted instead, slowest first, and dealt back and forth to even
// out what the CTAs have:
//
//   CTA           0        1        2     ..
//   pairs         9+1      8+2      7+3        a tile of head 0, and one of head 1
//                 6+4      5+5      ..
//   other heads   9        9        9          of all these heads
//                 6        6        7     ..   in the other direction
//
// With splits, each split of a head's keys is dealt as a head of its own.
//
// Without a causal mask, tiles cost about the same. They are dealt head by head or, with windows,
// all heads together.
#pragma once
#include "/kiln/attention/sm90/query_tile.cuh"

namespace kiln {

template <class Config>
class QueryTiles {
  static constexpr int kBlockQ = 64 * Config::kGroups;
  static constexpr bool kSplits = Config::kSplits;

 public:
  static constexpr bool kDraws = false;

  __device__ __forceinline__ explicit QueryTiles(const AttentionParams& params)
      : p_(params),
        heads_(static_cast<u32>(params.batch) * params.heads * (kSplits ? params.splits : 1)),
        tiles_(ceil_div(params.len_q, kBlockQ)),
        paired_heads_(max(params.heads_paired, 0)),
        pairs_(paired_heads_ / 2 * tiles_),
        pair_(blockIdx.x),
        in_last_round_(pairs_ % gridDim.x),
        place_(blockIdx.x) {
    if (place_ < in_last_round_) next_round();
  }

  __device__ __forceinline__ bool has_tile() const {
    return pair_ < pairs_ || place_ - in_last_round_ < (heads_ - paired_heads_) * tiles_;
  }

  __device__ __forceinline__ TilePlace tile() const {
    u32 head, tile;
    if (pair_ < pairs_) {
      const u32 faster = pair_ % tiles_;
      head = pair_ / tiles_ * 2 + (second_of_pair_ ? 1 : 0);
      tile = second_of_pair_ ? faster : tiles_ - 1 - faster;
    } else {
      const u32 index = place_ - in_last_round_;
      const u32 together = p_.heads_paired < 0 ? 1 : heads_ - paired_heads_;
      const u32 group = index / (together * tiles_), in_group = index % (together * tiles_);
      head = paired_heads_ + group * together + in_group % together;
      tile = tiles_ - 1 - in_group / together;
    }
    return tile_of(head, tile);
  }

  __device__ __forceinline__ void advance() {
    if (pair_ >= pairs_) return next_round();
    if (second_of_pair_) pair_ += gridDim.x;
    second_of_pair_ = !second_of_pair_;
  }

 private:
  __device__ __forceinline__ TilePlace tile_of(u32 head, u32 tile) const {
    u32 split = 0;
    if constexpr (kSplits) {
      split = head % p_.splits;
      head /= p_.splits;
    }
    const int h = static_cast<int>(head % p_.heads);
    return {static_cast<int>(head / p_.heads), h, h / (p_.heads / p_.heads_kv),
            static_cast<int>(tile) * kBlockQ, static_cast<int>(split)};
  }
  // The next round is dealt in the other direction.
  __device__ __forceinline__ void next_round() {
    const u32 place = place_ - round_;
    round_ += gridDim.x;
    place_ = round_ + gridDim.x - 1 - place;
  }

  const AttentionParams& p_;
  u32 heads_, tiles_;
  u32 paired_heads_, pairs_, pair_;
  bool second_of_pair_ = false;
  // The first of these rounds is the last one of pairs, of which that many CTAs got one.
  u32 in_last_round_, place_, round_ = 0;
};

}  // namespace kiln
