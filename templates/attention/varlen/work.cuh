// Deals the work of a call to its CTAs.
//
// Lengths are read from device memory by each CTA, so that a captured graph may be replayed with
// others. Where there are more query tiles than CTAs, the tiles of all sequences are laid end to
// end, each as long as its keys are many, and cut into equal shares:
//
//   sequence        0                        1        2
//   KV head         0           1            0   1    0         1
//   tile            |-----------|------------|---|----|---------|---------|
//   CTA             0      |1      |2      |3      |4      |5      |6     |
//
// Where there are fewer, each tile is cut by itself, into as many pieces as makes the longest one
// short, so that no CTA begins twice:
//
//   tile            |-----------|------------|---|----|---------|---------|
//   CTA             0    |1     |2     |3    |4  |5   |6   |7   |8   |9   |
//
// Pieces of a tile meet in the workspace. Where results may not depend on other sequences, a CTA
// computes whole tiles.
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
    settle();
    const int lane = threadIdx.x % 32, batch = p_.call.batch;
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
    at_ = end_;
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
    const auto step_at = [&](u32 unit) {
      return max(static_cast<int>(unit - begins) - ends_, 0) * current_.unit_steps;
    };
    // The tile's own keys end where its mask says.
    piece.steps = {step_at(at_), stop == ends ? kAllSteps : step_at(stop)};
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
    u32 count = 0, tiles = 1;  // query tiles, and those of a KV head
    u32 cost = 1;              // of a query tile, in units
    int unit_steps = 0;        // steps of keys in a unit

    __device__ __forceinline__ u32 units() const { return count * cost; }
  };

  // Rounded up, and at least one.
  __device__ __forceinline__ static u32 share_of(u32 all, u32 parts) {
    return all <= parts ? 1 : (all + parts - 1) / parts;
  }
  // Steps of keys that the last query tile of a sequence has.
  __device__ __forceinline__ u32 steps_of(const Sequence& sequence) const {
    const Range keys = visible_range(variant_, rows_of<Config>(sequence));
    const int first = keys.begin / Config::kBlockKv * Config::kBlockKv;
    return ceil_div(keys.end - first, Config::kBlockKv * Config::kTeams);
  }

  __device__ __forceinline__ Tiles load(int b) const {
    Tiles all;
    all.sequence = sequence_at(p_, b);
    if constexpr (Config::kSpread) all.sequence.total = __ldg(p_.spread.totals + b);
    const int rows = all.sequence.len_q * static_cast<int>(group_);
    if (rows < p_.least_rows || rows > p_.most_rows || rows == 0) return all;
    all.tiles = ceil_div(rows, Config::kBlockQ);
    all.count = all.tiles * p_.call.heads_kv;
    if (p_.whole_tiles != 0) return all;
    const u32 steps = steps_of(all.sequence);
    if (longest_ == 0) {
      all.cost = ends_ + steps;
      all.unit_steps = 1;
    } else {
      all.cost = share_of(steps, longest_);
      all.unit_steps = ceil_div(steps, all.cost);
    }
    return all;
  }

  // What all sequences have, as tiles are cut now.
  struct Tally {
    u32 units = 0, tiles = 0;
    u32 longest = 0;  // units of a tile
  };
  __device__ __forceinline__ Tally tally() const {
    Tally all;
    for (int b = threadIdx.x % 32; b < p_.call.batch; b += 32) {
      const Tiles one = load(b);
      all.units += one.units();
      all.tiles += one.count;
      if (one.count != 0) all.longest = max(all.longest, one.cost);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      all.units += __shfl_xor_sync(~0u, all.units, step);
      all.tiles += __shfl_xor_sync(~0u, all.tiles, step);
      all.longest = max(all.longest, __shfl_xor_sync(~0u, all.longest, step));
    }
    return all;
  }

  // Decides how tiles are cut, and this CTA's share.
  __device__ __forceinline__ void settle() {
    const u32 few = p_.few_ctas;
    u32 least = 0, serves = 0;  // bounds of longest_
    Tally all;
#pragma unroll 1
    do {
      all = tally();
      if (p_.whole_tiles != 0 || all.tiles == 0 || all.tiles > few) break;
      if (longest_ == 0) {
        // As if all tiles were cut into equally many pieces, which is best where lengths are equal.
        const u32 ends = all.tiles * kAttentionVarlenEnds;
        least = share_of(all.units - ends, few);
        serves = share_of(all.longest - kAttentionVarlenEnds, few / all.tiles);
        ends_ = 0;
      } else if (all.units <= few) {
        serves = longest_;
      } else {
        least = longest_ + 1;
      }
      longest_ = (least + serves) / 2;
    } while (least + least / 16 < serves);
    share_ = 1;
    if (serves != 0) {
      longest_ = serves;
      all.units = few;  // or fewer: the search for the sequence then finds none
    } else if (p_.whole_tiles == 0) {
      share_ = share_of(all.units, gridDim.x);
    }
    at_ = min(blockIdx.x * share_, all.units);
    end_ = min(at_ + share_, all.units);
  }

  const AttentionVarlenParams& p_;
  const Variant& variant_;
  u32 group_;
  int ends_ = kAttentionVarlenEnds;  // what a query tile costs beside its keys, in units
  u32 longest_ = 0;                  // steps of the longest piece, where tiles are cut one by one
  u32 share_, at_, end_;             // of this CTA, in units
  u32 before_ = 0;                   // units of the sequences before the current one
  Tiles current_;
};

}  // namespace kiln
