// Selects the query tiles that a CTA computes where sequences have lengths of their own:
// QueryTiles' interface.
//
// The tiles of all sequences are laid end to end, and each CTA takes the next one when it ends the
// one before. Of a sequence, heads whose keys fit L2 come together, and of these the last tiles,
// which a causal mask makes the slowest, come first:
//
//   sequence     0                                 1
//   heads        0 .. 11           12 .. 23        0 .. 23
//   tile         9 9 9 .. 8 8 ..   9 9 9 .. 8 8    2 2 2 .. 1 1 1 .. 0 0 0
//
// The work then ends with short tiles, and CTAs end together.
#pragma once
#include "/kiln/attention/sm90/sequence_tile.cuh"
#include "/kiln/attention/sm90/shape.cuh"
#include "/kiln/base/draw.cuh"

namespace kiln {

// All functions are called by the scheduler warp. It has few registers, so that its state lies in
// shared memory: how many tiles there are up to the end of each of 32 sequences, and before them.
template <class Config>
class SequenceTiles {
  using Shape = AttentionSm90Shape<Config>;

 public:
  static constexpr bool kDraws = true;

  __device__ __forceinline__ explicit SequenceTiles(const AttentionVarlenParams& params)
      : p_(params) {
    if (lane() == 0) store_word(Shape::schedule() + 4 + 31 * 4, 0);
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
      count_tiles(end_at(31));
    }
    return true;
  }

  // Requires: has_tile() has returned true.
  __device__ __forceinline__ SequencePlace tile() const {
    const int found = __ffs(__ballot_sync(~0u, index_ < end_at(lane()))) - 1;
    const Sequence s = sequence_at(p_, first_ + found);
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

  // `sequence` counts from the first of the 32; that of -1 ends before them.
  __device__ __forceinline__ static u32 end_at(int sequence) {
    return load_word(Shape::schedule() + 4 + sequence * 4);
  }
  __device__ __forceinline__ void count_tiles(u32 before) const {
    __syncwarp();
    u32 count = 0;
    if (first_ + lane() < p_.call.batch) {
      const int len_q = sequence_at(p_, first_ + lane()).len_q;
      const int rows = len_q * p_.group.by;
      if (rows >= p_.least_rows && rows <= p_.most_rows) {
        count = ceil_div(len_q, queries()) * columns_.count();
      }
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const u32 below = __shfl_up_sync(~0u, count, step);
      if (lane() >= step) count += below;
    }
    if (lane() == 0) store_word(Shape::schedule(), before);
    store_word(Shape::schedule() + 4 + lane() * 4, before + count);
    __syncwarp();
  }

  // Half of an H200's L2 holds the keys and values of so many heads.
  __device__ __forceinline__ u32 heads_together(int len_kv) const {
    constexpr u32 kBytes = 2 * (Config::kHeadDim + Config::kHeadDimV), kL2Bytes = 25u << 20;
    const u32 heads_kv = max(kL2Bytes / kBytes / max(len_kv, 1), 1u);
    return min(heads_kv, static_cast<u32>(p_.call.heads_kv)) * columns_.together();
  }

  const AttentionVarlenParams& p_;
  TileColumns<typename Config::Storage::Tile> columns_{p_};
  u32 index_ = blockIdx.x;
  int first_ = -32;  // of the 32 sequences; before any, none has been counted
};

}  // namespace kiln
