// Deals the work of a call to its CTAs.
//
// The query tiles of all sequences are laid end to end, each as long as its keys are many:
//
//   sequence        0                        1        2
//   KV head         0           1            0   1    0         1
//   tile            |-----------|------------|---|----|---------|---------|
//   CTA             0      |1      |2      |3      |4      |5      |6     |
//
// and cut into equal shares, so that CTAs take equally long however the lengths differ. Lengths are
// read from device memory by each CTA, so that a captured graph may be replayed with others. A CTA
// has a partial result of at most two query tiles, the one that its share begins in and the one
// that it ends in; they meet in the workspace.
#pragma once
#include "/kiln/attention/varlen/sequences.cuh"

namespace kiln {

// Some or all of the keys of a query tile.
struct Piece {
  Sequence sequence;
  int h_kv, first_row;  // first_row: of all rows of the sequence that have this KV head
  Range steps;          // of keys, counted from the first that the tile sees
  // The CTAs that compute pieces of this tile, the first of them, and this one's place among them.
  u32 pieces, first_cta, index;
};

template <class Config, class Variant>
class Work {
 public:
  __device__ __forceinline__ Work(const AttentionVarlenParams& params, const Variant& variant)
      : p_(params),
        variant_(variant),
        group_(static_cast<u32>(params.call.heads) / static_cast<u32>(params.call.heads_kv)) {
    const int lane = threadIdx.x % 32, batch = p_.call.batch;
    u32 total = 0;
    for (int b = lane; b < batch; b += 32) total += load(b).units();
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    share_ = max(ceil_div(total, gridDim.x), 1u);
    at_ = min(blockIdx.x * share_, total);
    end_ = min(at_ + share_, total);
    if (at_ == end_) return;
    // Finds the sequence that holds the share's beginning, 32 at a time.
    for (int first = 0; first < batch; first += 32) {
      const u32 units = first + lane < batch ? load(first + lane).units() : 0;
      u32 up_to = units;  // of the sequences up to this lane's
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const u32 below = __shfl_up_sync(~0u, up_to, step);
        if (lane >= step) up_to += below;
      }
      const u32 reaches = __ballot_sync(~0u, before_ + up_to > at_);
      if (reaches != 0) {
        const int found = __ffs(reaches) - 1;
        before_ += __shfl_sync(~0u, up_to - units, found);
        current_ = load(first + found);
        return;
      }
      before_ += __shfl_sync(~0u, up_to, 31);
    }
  }

  // Takes the next piece of this CTA's share; false after the last.
  __device__ __forceinline__ bool next(Piece& piece) {
    if (at_ >= end_) return false;
    while (at_ >= before_ + current_.units()) {
      before_ += current_.units();
      current_ = load(current_.sequence.b + 1);
    }
    const u32 item = (at_ - before_) / current_.cost;
    const u32 begins = before_ + item * current_.cost, ends = begins + current_.cost;
    const u32 stop = min(ends, end_);
    piece.sequence = current_.sequence;
    piece.h_kv = item / current_.tiles;
    // The last tile comes first, as a causal mask makes it the slowest.
    piece.first_row = (current_.tiles - 1 - item % current_.tiles) * Config::kBlockQ;
    const int step = static_cast<int>(at_ - begins) - kAttentionVarlenEnds;
    piece.steps = {max(step, 0), max(static_cast<int>(stop - begins) - kAttentionVarlenEnds, 0)};
    // The tile's own keys end where its mask says.
    if (stop == ends) piece.steps.end = kAllSteps;
    piece.first_cta = begins / share_;
    piece.pieces = (ends - 1) / share_ - piece.first_cta + 1;
    piece.index = blockIdx.x - piece.first_cta;
    at_ = stop;
    return true;
  }

 private:
  static constexpr int kAllSteps = 1 << 24;

  struct Tiles {
    Sequence sequence;
    u32 tiles = 0, heads = 0;  // query tiles of a KV head, KV heads
    u32 cost = 1;              // of a query tile, in steps of keys

    __device__ __forceinline__ u32 units() const { return tiles * heads * cost; }
  };

  __device__ __forceinline__ Tiles load(int b) const {
    Tiles all;
    all.sequence = sequence_at(p_, b);
    const int rows = all.sequence.len_q * static_cast<int>(group_);
    if (rows < p_.least_rows || rows > p_.most_rows) return all;
    all.tiles = ceil_div(rows, Config::kBlockQ);
    all.heads = p_.call.heads_kv;
    if (p_.whole_tiles == 0) {
      const Range keys = visible_range(variant_, rows_of(all.sequence));
      const int first = keys.begin / Config::kBlockKv * Config::kBlockKv;
      constexpr int kStep = Config::kBlockKv * Config::kTeams;
      all.cost = kAttentionVarlenEnds + ceil_div(keys.end - first, kStep);
    }
    return all;
  }

  const AttentionVarlenParams& p_;
  const Variant& variant_;
  u32 group_;
  u32 share_, at_, end_;  // of this CTA, in units of Tiles::cost
  u32 before_ = 0;        // units of the sequences before the current one
  Tiles current_;
};

}  // namespace kiln
