// Selects the query tiles that a CTA computes where sequences have lengths of their own:
// QueryTiles' interface.
//
// The tiles of all sequences are laid end to end, and each CTA takes the next one when it ends the
// one before. Of each 32 sequences, those of the most keys come first. Of a sequence, heads whose
// keys fit L2 come together, and of these the last tiles, which a causal mask makes the slowest,
// come first:
//
//   sequence     1 (60k keys)                      0 (20k keys)
//   heads        0 .. 11           12 .. 23        0 .. 23
//   tile         9 9 9 .. 8 8 ..   9 9 9 .. 8 8    2 2 2 .. 1 1 1 .. 0 0 0
//
// The work then ends with short tiles, and CTAs end together.
#pragma once
#include "/kiln/attention/sm90/sequence_tile.cuh"
#include "/kiln/attention/sm90/shape.cuh"
#include "/kiln/base/draw.cuh"
#include "/kiln/base/lanes.cuh"

namespace kiln {

// All functions are called by the scheduler warp. It has few registers, so that its state lies in
// shared memory: for each of 32 sequences in their order how many tiles there are up to its end, in
// the upper 27 bits of a word, and which one of the 32 it is; and a word before these.
template <class Config>
class SequenceTiles {
  using Shape = AttentionSm90Shape<Config>;

 public:
  static constexpr bool kDraws = true;

  __device__ __forceinline__ explicit SequenceTiles(const AttentionVarlenParams& params)
      : p_(params) {
    if (lane() == 0) store_word(word(31), 0);
    __syncwarp();
  }

  // Numbers that are drawn only grow.
  __device__ __forceinline__ bool has_tile() {
    while (first_ < 0 || !__any_sync(~0u, index_ < end_at(lane()))) {
      if (first_ + 32 >= p_.call.batch) {
        stop_drawing();
        return false;
      }
      first_ += 32;
      count_tiles();
    }
    return true;
  }

  // Requires: has_tile() has returned true.
  __device__ __forceinline__ SequencePlace tile() const {
    const int found = __ffs(__ballot_sync(~0u, index_ < end_at(lane()))) - 1;
    const Sequence s = sequence_at(p_, first_ + static_cast<int>(word_at(found) % 32));
    const u32 heads = columns_.count(), tiles = ceil_div(s.len_q, queries());
    const u32 together = heads_together(s.len_kv);
    const u32 item = index_ - end_at(found - 1), first_head = item / (tiles * together) * together;
    const u32 here = min(together, heads - first_head), in_group = item - first_head * tiles;
    const u32 h = first_head + in_group % here;
    return columns_.place(s, h, tiles - 1 - in_group / here, Shape::kBlockQ);
  }

  __device__ __forceinline__ void advance() {
    if (!draws()) {
      index_ += gridDim.x;
      return;
    }
    u32 drawn = 0;
    if (lane() == 0) {
      const bool is_first = index_ < gridDim.x;
      drawn = draw(static_cast<u64*>(p_.call.workspace), p_.call.nonce, is_first);
    }
    index_ = gridDim.x + __shfl_sync(~0u, drawn, 0);
  }

 private:
  // Without a workspace, tiles are dealt in rounds.
  __device__ __forceinline__ bool draws() const { return p_.call.workspace != nullptr; }
  // Each CTA draws a number behind the last tile, and these are drawn last.
  __device__ __forceinline__ void stop_drawing() const {
    if (draws() && index_ + 1 == end_at(31) + gridDim.x && lane() == 0) {
      end_draws(static_cast<u64*>(p_.call.workspace));
    }
  }

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ int queries() const { return columns_.queries(Shape::kBlockQ); }

  // `place` is that in the order of the 32; -1 is before them.
  __device__ __forceinline__ static u32 word(int place) {
    return Shape::schedule() + 4 + place * 4;
  }
  __device__ __forceinline__ static u32 word_at(int place) { return load_word(word(place)); }
  __device__ __forceinline__ static u32 end_at(int place) { return word_at(place) / 32; }

  __device__ __forceinline__ void count_tiles() const {
    const u32 before = end_at(31);
    __syncwarp();
    if (lane() == 0) store_word(word(-1), before * 32);
    u32 tiles = 0;
    int keys = 0;
    if (first_ + lane() < p_.call.batch) {
      const Sequence s = sequence_at(p_, first_ + lane());
      const int rows = s.len_q * p_.group.by;
      // Another launch computes the others.
      if (rows >= p_.least_rows && rows <= p_.most_rows) {
        tiles = ceil_div(s.len_q, queries()) * columns_.count();
      }
      keys = s.len_kv;
    }
    store_word(word(place_of(keys)), tiles * 32 + lane());
    __syncwarp();
    const u32 up_to = sum_up_to_lane(end_at(lane()));
    store_word(word(lane()), (end_at(-1) + up_to) * 32 + word_at(lane()) % 32);
    __syncwarp();
  }

  // Returns the place of the lane's sequence among the 32: in order of keys, of which the most come
  // first, and in the given order where keys are equal.
  __device__ __forceinline__ static int place_of(int keys) {
    const u32 own = min(keys, 0x7ffffff) * 32u + 31 - lane();
    store_word(word(lane()), own);
    __syncwarp();
    int place = 0;
#pragma unroll
    for (int other = 0; other < 32; ++other) place += word_at(other) > own;
    __syncwarp();
    return place;
  }

  // Half of an H200's L2 holds the keys and values of so many heads. Groups of heads are nearly
  // equal: a small one at the end would begin with long tiles that no others follow.
  __device__ __forceinline__ u32 heads_together(int len_kv) const {
    constexpr u32 kBytes = 2 * (Config::kHeadDim + Config::kHeadDimV), kL2Bytes = 25u << 20;
    const u32 fitting = max(kL2Bytes / kBytes / max(len_kv, 1), 1u);
    u32 heads_kv = static_cast<u32>(p_.call.heads_kv);
    while (heads_kv > fitting) heads_kv = (heads_kv + 1) / 2;
    return heads_kv * columns_.together();
  }

  const AttentionVarlenParams& p_;
  TileColumns<typename Config::Storage::Tile> columns_{p_};
  u32 index_ = blockIdx.x;
  int first_ = -32;  // of the 32 sequences; before any, none has been counted
};

}  // namespace kiln
