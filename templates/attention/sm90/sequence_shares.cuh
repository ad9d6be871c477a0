// Selects the query tiles that a CTA computes, or the pieces of them, where sequences have lengths
// of their own and too few tiles for all multiprocessors: QueryTiles' interface.
//
// Where there are no more tiles than CTAs, each is cut by itself, into as many pieces as makes the
// longest one short. A CTA has one piece, and CTAs whose tiles see the same keys read these at the
// same time:
//
//   tile         0           1           2     3
//   CTA          0  |1  |2   3  |4  |5   6  |7 8  |9
//
// Where that leaves too many CTAs without work, or a few with much, all tiles are laid end to end,
// each as long as its keys are many, and cut into equal shares. A CTA then has at most two tiles of
// which others have keys too. A cut near the end of a tile is moved there: a piece of few keys
// takes longer than they do.
//
//   tile         0           1           2     3
//   CTA          0      |1      |2      |3      |4
//
// A CTA computes its whole tiles first, then the piece that begins a tile, and at last the one that
// ends a tile. CTAs whose tiles see the same keys so read them at about the same time, from the
// first key on: in the order of the tiles, 2k queries that see 64k keys read 9 GB from memory
// instead of 1.
//
// Heads that share keys stand side by side. Lengths are read from device memory, and each CTA finds
// its share from all of them. With a plan, a few words say what it has instead, see
// plan_shares.cuh.
#pragma once
#include "/kiln/attention/sm90/sequence_tile.cuh"

namespace kiln {

// A sequence's query tiles of one head, and what they cost in units: the mask is asked about the
// first and the last, and between them costs grow evenly.
struct SequenceCosts {
  u32 tiles = 0;
  u32 first = 0;  // of the first tile
  int slope = 0;  // from tile to tile, in 1/64

  // Returns the units of the tiles before the i-th.
  __device__ __forceinline__ u32 before(u32 i) const {
    const i64 grown = i64{slope} * (i64{i} * (i64{i} - 1) / 2) >> 6;
    return i * first + static_cast<u32>(grown);
  }
  // Returns the steps of keys of the longest tile, each of which costs `ends` units beside them. It
  // is not kept: three math warpgroups leave the scheduler warp no register for it (D64).
  __device__ __forceinline__ u32 longest(u32 ends) const {
    if (tiles == 0) return 0;
    return first - ends + ceil_div(static_cast<u32>(max(slope, 0)) * (tiles - 1), 64u);
  }
};

// All functions are called by the scheduler warp, or by one that makes the plan. TileSize has a
// tile's sizes, and keeps a word for the warp.
template <class TileSize, class Variant>
class SequenceShares : TileSize {
  using WholeTile = GroupedTile;
  using TileSize::block_kv;
  using TileSize::block_q;
  using TileSize::keep;
  using TileSize::kept;

 public:
  static constexpr bool kDraws = false;

  __device__ __forceinline__ SequenceShares(const AttentionVarlenParams& params,
                                            const Variant& variant, TileSize size = {})
      : TileSize(size), p_(params), variant_(variant) {
    own_ = measure(0);
    const u32 all = settle();
    // Not unrolled, as this code comes from memory.
    Cut first{0, 0}, last{0, 0};
#pragma unroll 1
    for (u32 cut = blockIdx.x; cut <= blockIdx.x + 1; ++cut) {
      first = last, last = moved(min(cut * share_, all), all);
    }
    at_ = min(first.next, last.unit), end_ = last.unit;
    // The piece of a tile that another CTA has begun comes last.
    keep(first.unit < first.next ? first.unit : end_);
  }

  // Takes the next piece; false after the last.
  __device__ __forceinline__ bool has_tile() {
    const bool is_last = at_ >= end_;
    if (is_last) {
      at_ = kept();
      keep(end_);
    }
    if (at_ >= end_) return false;
    take();
    if (is_last) at_ = end_;
    return true;
  }
  // Requires: has_tile() has returned true.
  __device__ __forceinline__ const SequencePiece& tile() const { return taken_; }
  __device__ __forceinline__ void advance() const {}

 private:
  // Units of an equal share are steps of keys. The ends of a tile take as long as 320 keys, writing
  // and joining partial results as 640 more. No cut is so near to the ends of a tile that less than
  // two steps would be left, and no piece has less than 640 keys.
  __device__ __forceinline__ u32 tile_ends() const { return ceil_div(320, block_kv()); }
  __device__ __forceinline__ u32 least_piece() const { return ceil_div(640, block_kv()); }
  __device__ __forceinline__ u32 joins() const { return least_piece(); }

  __device__ __forceinline__ void take() {
    const Found found = find(at_);
    const Sequence s = sequence_at(p_, found.b);
    const u32 end = found.begin + found.cost, stop = min(end, end_);
    const u32 first_cta = (found.begin + near() - 1) / share_;
    const u32 last_cta = max((end - min(end, near())) / share_, first_cta);
    static_cast<SequencePlace&>(taken_) = columns_.place(s, found.column, found.tile, block_q());
    taken_.piece = static_cast<int>(blockIdx.x - first_cta);
    taken_.pieces = static_cast<int>(last_cta - first_cta + 1);
    taken_.first_cta = first_cta;
    // The tile has these steps, whatever it has been counted for.
    const u32 steps = steps_of(WholeTile(p_, taken_));
    // Both CTAs at a cut round the same.
    const float of_unit = to_float(static_cast<int>(steps)) *
                          reciprocal_approx(to_float(static_cast<int>(found.cost - ends())));
    const auto step_at = [&](u32 units) {
      if (units == 0) return 0;
      if (units == found.cost) return static_cast<int>(steps);
      const float at = to_float(static_cast<int>(units - ends())) * of_unit;
      return min(static_cast<int>(at + 0.5f), static_cast<int>(steps));
    };
    taken_.steps = {step_at(at_ - found.begin), step_at(stop - found.begin)};
    at_ = stop;
  }

  // A query tile: its place in all units.
  struct Found {
    int b;
    u32 column, tile;
    u32 begin, cost;
  };

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ int queries() const { return columns_.queries(block_q()); }
  __device__ __forceinline__ u32 units_of(const SequenceCosts& costs) const {
    return costs.before(costs.tiles) * columns_.count();
  }

  __device__ __forceinline__ u32 steps_of(const WholeTile& tile) const {
    return steps_of_keys(variant_, tile, block_q(), block_kv());
  }

  // Units that a tile has beside its steps, and that a cut has on both sides.
  __device__ __forceinline__ u32 ends() const { return longest_ == 0 ? tile_ends() : 0; }
  __device__ __forceinline__ u32 near() const { return longest_ == 0 ? tile_ends() + 2 : 1; }

  struct Tally {
    u32 units = 0, tiles = 0, longest = 0;
  };
  // Counts all sequences, as tiles are cut now.
  __device__ __forceinline__ Tally tally() const {
    SequenceCosts own = own_;
    Tally all;
#pragma unroll 1
    for (int first = 0;;) {
      const SequenceCosts costs = cut(own);
      all.units += units_of(costs);
      all.tiles += costs.tiles * columns_.count();
      all.longest = max(all.longest, own.longest(tile_ends()));
      if ((first += 32) >= p_.call.batch) break;
      own = measure(first);
    }
    return {__reduce_add_sync(~0u, all.units), __reduce_add_sync(~0u, all.tiles),
            __reduce_max_sync(~0u, all.longest)};
  }

  // Decides how tiles are cut; returns the units of all.
  __device__ __forceinline__ u32 settle() {
    const Tally all = tally();
    share_ = max(static_cast<u32>(ceil_div(all.units, gridDim.x)), least_piece() + tile_ends());
    if (all.tiles == 0 || all.tiles > gridDim.x) return all.units;
    // As if all tiles were cut into equally many pieces, which is best where lengths are equal.
    u32 least = max(share_ - min(share_, tile_ends()), least_piece());
    u32 serves = max(static_cast<u32>(ceil_div(all.longest, gridDim.x / all.tiles)), least);
    u32 pieces = 0;
    if (p_.call.batch == 1) least = serves;  // lengths are equal
#pragma unroll 1
    while (true) {
      longest_ = least + least / 16 < serves ? (least + serves) / 2 : serves;
      pieces = tally().units;
      if (longest_ == serves) break;
      if (pieces <= gridDim.x) {
        serves = longest_;
      } else {
        least = longest_ + 1;
      }
    }
    // Equal shares begin anywhere, so that CTAs read the same keys at different times.
    if (serves <= share_ + share_ / 8 + joins()) {
      share_ = 1;
      return pieces;
    }
    longest_ = 0;
    return all.units;
  }

  // As longest_ says.
  __device__ __forceinline__ SequenceCosts cut(SequenceCosts costs) const {
    if (longest_ != 0) {
      const u32 longest = costs.longest(tile_ends());
      costs.first = max(static_cast<u32>(ceil_div(longest, longest_)), 1u), costs.slope = 0;
    }
    return costs;
  }

  // Returns the costs of the lane's sequence among the 32 from `first` on.
  __device__ __forceinline__ SequenceCosts measure(int first) const {
    SequenceCosts costs;
    if (first + lane() >= p_.call.batch) return costs;
    const Sequence s = sequence_at(p_, first + lane());
    const int rows = s.len_q * p_.group.by;
    if (rows < p_.least_rows || rows > p_.most_rows) return costs;
    costs.tiles = ceil_div(s.len_q, queries());
    if (costs.tiles == 0) return costs;
    const auto steps = [&](u32 tile) {
      return steps_of(WholeTile(p_, {s.b, 0, 0, static_cast<int>(tile) * queries(), s.entry,
                                     s.first_q, s.len_q, s.first_k, s.len_kv}));
    };
    const u32 first_steps = steps(0), last_steps = steps(costs.tiles - 1);
    costs.first = tile_ends() + first_steps;
    costs.slope = static_cast<int>(last_steps - first_steps) * 64 /
                  static_cast<int>(max(costs.tiles - 1, 1u));
    return costs;
  }

  // The tile that holds a unit of the share. Requires: there is one.
  __device__ __forceinline__ Found find(u32 unit) const {
    u32 before = 0;  // units of the sequences before
    SequenceCosts measured = own_;
#pragma unroll 1
    for (int first = 0;;) {
      const SequenceCosts own = cut(measured);
      u32 up_to = units_of(own);  // of the sequences up to this lane's
      const u32 units = up_to;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const u32 below = __shfl_up_sync(~0u, up_to, step);
        if (lane() >= step) up_to += below;
      }
      const u32 reaches = __ballot_sync(~0u, before + up_to > unit);
      if (reaches == 0 && first + 32 < p_.call.batch) {
        before += __shfl_sync(~0u, up_to, 31);
        measured = measure(first += 32);
        continue;
      }
      const int found = reaches == 0 ? 0 : __ffs(reaches) - 1;
      const auto of_found = [&](auto value) { return __shfl_sync(~0u, value, found); };
      return find_in(first + found, {of_found(own.tiles), of_found(own.first), of_found(own.slope)},
                     before + of_found(up_to - units), unit);
    }
  }
  // In sequence `b`, which begins at `before`.
  __device__ __forceinline__ Found find_in(int b, const SequenceCosts& costs, u32 before,
                                           u32 unit) const {
    const u32 of_kv_head = costs.before(costs.tiles) * columns_.together();
    const u32 h_kv = (unit - before) / max(of_kv_head, 1u);
    const u32 begin = before + h_kv * of_kv_head;
    u32 tile = 0;
#pragma unroll 1
    for (u32 first = 0; first < costs.tiles; first += 32) {
      const u32 own = first + lane();
      const bool is_before =
          own < costs.tiles && costs.before(own) * columns_.together() <= unit - begin;
      const u32 all = __ballot_sync(~0u, is_before);
      if (all == 0) break;
      tile = first + 31 - __clz(static_cast<int>(all));
    }
    const u32 cost = costs.before(tile + 1) - costs.before(tile);
    const u32 here = begin + costs.before(tile) * columns_.together();
    const u32 in_group = (unit - here) / max(cost, 1u);
    return {b, h_kv * columns_.together() + in_group, tile, here + in_group * cost, cost};
  }

  // A cut, and where the tile ends that it divides, if it does.
  struct Cut {
    u32 unit, next;
  };
  // Where a cut is made instead of at a unit.
  __device__ __forceinline__ Cut moved(u32 unit, u32 all) const {
    if (longest_ != 0 || unit == 0 || unit >= all) return {unit, unit};
    const Found found = find(unit);
    const u32 end = found.begin + found.cost;
    if (unit - found.begin < near()) return {found.begin, found.begin};
    return {end - unit < near() ? end : unit, end};
  }

  const AttentionVarlenParams& p_;
  TileColumns<WholeTile> columns_{p_};
  const Variant& variant_;
  SequenceCosts own_;  // of the lane's sequence among the first 32, before tiles are cut
  u32 longest_ = 0;    // steps of the longest piece where tiles are cut one by one, else 0
  SequencePiece taken_;
  u32 share_, at_, end_;  // in units, at_: of what has not been taken
};

}  // namespace kiln
