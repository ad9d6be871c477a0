// Deals the work of a call to its CTAs: the arithmetic, which the attention kernels and the kernel
// of plan.cuh share.
//
// Lengths are read from device memory, so that a captured graph may be replayed with others. Where
// there are more query tiles than CTAs, the tiles of all sequences are laid end to end, each as
// long as its keys are many, and cut into equal shares:
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
// Where results may not depend on other sequences, a CTA computes whole tiles.
//
// A CTA reads all lengths to find its share. With a plan, which another launch made of the same
// lengths, it reads 64 bytes instead.
#pragma once
#include "/kiln/attention/varlen/plan_entry.cuh"
#include "/kiln/attention/varlen/sequences.cuh"

namespace kiln {

// The sizes that decide about shares: kernels that compute know theirs when they are compiled.
template <class Config>
struct DealtTile {
  static constexpr bool kSpread = Config::kSpread;
  __device__ __forceinline__ static constexpr int block_q() { return Config::kBlockQ; }
  __device__ __forceinline__ static constexpr int block_kv() { return Config::kBlockKv; }
  __device__ __forceinline__ static constexpr int step_keys() {
    return Config::kBlockKv * Config::kTeams;
  }
};

// The query tiles of a sequence, as they are cut.
struct SequenceShare {
  Sequence sequence;
  u32 count = 0, tiles = 1;  // query tiles, and those of a KV head
  u32 steps = 0;             // of keys, of the last query tile
  u32 cost = 1;              // of a query tile, in units
  int unit_steps = 0;        // steps of keys in a unit

  __device__ __forceinline__ u32 units() const { return count * cost; }
};

template <class Shape, class Variant>
class Deal : Shape {
 public:
  // Reads all lengths.
  __device__ __forceinline__ void begin() {
    SequenceShare own;  // of the lane's sequence among the first 32
    const int lane = threadIdx.x % 32;
    if (lane < p_.call.batch) own = measure(lane);
    settle(own);
    find(own);
  }

  // Requires: `entry` was written by a Deal of the same call for this CTA.
  __device__ __forceinline__ void begin(const PlanEntry& entry) {
    const uint4 head = entry.words[0], place = entry.words[1], lengths = entry.words[2],
                cut = entry.words[3];
    check_plan_key(p_, head);
    longest_ = head.z, share_ = head.w;
    ends_ = longest_ == 0 ? kAttentionVarlenEnds : 0;
    end_ = place.x, before_ = place.y;
    at_ = min(blockIdx.x * share_, end_);
    current_.tiles = place.z, current_.cost = place.w;
    current_.count = current_.tiles * p_.call.heads_kv;
    current_.unit_steps = cut.x;
    Sequence& s = current_.sequence;
    s.b = lengths.x;
    s.first_q = lengths.y, s.len_q = lengths.z, s.first_k = lengths.w;
    s.len_kv = cut.y, s.total = cut.z;
    s.entry = entry_at(p_, s.b);
  }

  __device__ __forceinline__ PlanEntry entry() const {
    const Sequence& s = current_.sequence;
    const auto word = [](int number) { return static_cast<u32>(number); };
    // begin() finds no share where it ends at 0.
    const u32 end = at_ < end_ ? end_ : 0;
    return {{{plan_key_word(p_, 0), plan_key_word(p_, 1), longest_, share_},
             {end, before_, current_.tiles, current_.cost},
             {word(s.b), word(s.first_q), word(s.len_q), word(s.first_k)},
             {word(current_.unit_steps), word(s.len_kv), word(s.total), 0}}};
  }

 protected:
  __device__ __forceinline__ Deal(const AttentionVarlenParams& params, const Variant& variant,
                                  Shape shape = {})
      : Shape(shape), p_(params), variant_(variant) {}

  // Rounded up, and at least one.
  __device__ __forceinline__ static u32 share_of(u32 all, u32 parts) {
    return all <= parts ? 1 : (all + parts - 1) / parts;
  }
  // Steps of keys that the last query tile of a sequence has.
  __device__ __forceinline__ u32 steps_of(const Sequence& sequence) const {
    const Range keys = visible_range(variant_, rows_of<Shape>(sequence));
    const int first = keys.begin / Shape::block_kv() * Shape::block_kv();
    return ceil_div(keys.end - first, Shape::step_keys());
  }

  __device__ __forceinline__ Sequence measure_sequence(int b) const {
    Sequence sequence = sequence_at(p_, b);
    if constexpr (Shape::kSpread) sequence.total = __ldg(p_.spread.totals + b);
    return sequence;
  }
  // Reads the lengths of a sequence.
  __device__ __forceinline__ SequenceShare measure(int b) const {
    SequenceShare all;
    all.sequence = measure_sequence(b);
    const int rows = all.sequence.len_q * p_.group.by;
    if (rows < p_.least_rows || rows > p_.most_rows || rows == 0) return all;
    all.tiles = ceil_div(rows, Shape::block_q());
    all.count = all.tiles * p_.call.heads_kv;
    if (p_.whole_tiles == 0) all.steps = steps_of(all.sequence);
    return all;
  }
  // Cuts the query tiles of a sequence as longest_ says.
  __device__ __forceinline__ void cut(SequenceShare& all) const {
    if (all.count == 0 || p_.whole_tiles != 0) return;
    if (longest_ == 0) {
      all.cost = ends_ + all.steps;
      all.unit_steps = 1;
    } else {
      all.cost = share_of(all.steps, longest_);
      all.unit_steps = ceil_div(all.steps, all.cost);
    }
  }
  __device__ __forceinline__ SequenceShare load(int b) const {
    SequenceShare all = measure(b);
    cut(all);
    return all;
  }

  // The work of all sequences, as tiles are cut now.
  struct Tally {
    u32 units = 0, tiles = 0;
    u32 longest = 0;  // units of a tile
  };
  // `own`: of the lane's sequence among the first 32.
  __device__ __forceinline__ Tally tally(SequenceShare own) const {
    Tally all;
#pragma unroll 1
    for (int b = threadIdx.x % 32;;) {
      cut(own);
      all.units += own.units();
      all.tiles += own.count;
      if (own.count != 0) all.longest = max(all.longest, own.cost);
      if ((b += 32) >= p_.call.batch) break;
      own = measure(b);
    }
    return {__reduce_add_sync(~0u, all.units), __reduce_add_sync(~0u, all.tiles),
            __reduce_max_sync(~0u, all.longest)};
  }

  // Decides how tiles are cut, and this CTA's share.
  __device__ __forceinline__ void settle(const SequenceShare& own) {
    const u32 few = p_.few_ctas;
    u32 least = 0, serves = 0;  // bounds of longest_
    Tally all;
#pragma unroll 1
    do {
      all = tally(own);
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

  // Finds the sequence that holds the share's beginning, 32 at a time.
  __device__ __forceinline__ void find(SequenceShare own) {
    const int lane = threadIdx.x % 32, batch = p_.call.batch;
    if (at_ == end_) return;
#pragma unroll 1
    for (int first = 0;;) {
      cut(own);
      const u32 units = own.units();
      u32 up_to = units;  // of the sequences up to this lane's
#pragma unroll 1
      for (int step = 1; step < min(32, batch - first); step *= 2) {
        const u32 below = __shfl_up_sync(~0u, up_to, step);
        if (lane >= step) up_to += below;
      }
      const u32 reaches = __ballot_sync(~0u, before_ + up_to > at_);
      if (reaches != 0) {
        const int found = __ffs(reaches) - 1;
        before_ += __shfl_sync(~0u, up_to - units, found);
        current_ = of_lane(own, first + found, found);
        return;
      }
      before_ += __shfl_sync(~0u, up_to, 31);
      if ((first += 32) >= batch) break;
      own = first + lane < batch ? measure(first + lane) : SequenceShare();
    }
    at_ = end_;
  }

  // Returns what `lane` has read of sequence `b`.
  __device__ __forceinline__ static SequenceShare of_lane(const SequenceShare& own, int b,
                                                          int lane) {
    const auto get = [&](auto value) { return __shfl_sync(~0u, value, lane); };
    const Sequence& s = own.sequence;
    SequenceShare all;
    all.sequence = {b, get(s.entry), get(s.first_q), get(s.len_q), get(s.first_k), get(s.len_kv)};
    if constexpr (Shape::kSpread) all.sequence.total = get(s.total);
    all.count = get(own.count), all.tiles = get(own.tiles), all.cost = get(own.cost);
    all.unit_steps = get(own.unit_steps);
    return all;
  }

  const AttentionVarlenParams& p_;
  const Variant& variant_;
  int ends_ = kAttentionVarlenEnds;  // what a query tile costs beside its keys, in units
  u32 longest_ = 0;                  // steps of the longest piece, where tiles are cut one by one
  u32 share_, at_, end_;             // of this CTA, in units
  u32 before_ = 0;                   // units of the sequences before the current one
  SequenceShare current_;
};

}  // namespace kiln
