// Selects the query tiles that a CTA computes, or the pieces of them, where sequences have lengths
// of their own and too few tiles for all multiprocessors.
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
#include "/kiln/base/lanes.cuh"

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
// tile's sizes, and keeps words for the warp.
template <class TileSize, class Variant>
class SequenceShares : TileSize {
  using WholeTile = GroupedTile;
  using TileSize::block_kv;
  using TileSize::block_q;
  using TileSize::keep;
  using TileSize::kept;

 public:
  __device__ __forceinline__ SequenceShares(const AttentionVarlenParams& params,
                                            const Variant& variant, TileSize size = {})
      : TileSize(size), p_(params), variant_(variant) {
    keep(KeptWord::share, 0);
  }

  // Takes the next piece; false after the last. The share is between two cuts, which are found
  // first, and by the same code as the tile of a piece: the code comes from memory.
  __device__ __forceinline__ bool take(SequencePiece& taken) {
    const bool is_first = kept(KeptWord::share) == 0;
    if (is_first) settle();
#pragma unroll 1
    for (u32 cut = is_first ? 0 : 2;; ++cut) {
      const bool is_cut = cut < 2;
      if (!is_cut && !has_next()) return false;
      const u32 all = kept(KeptWord::all);
      const u32 unit = is_cut ? min((blockIdx.x + cut) * kept(KeptWord::share), all) : at_;
      const bool divides = !is_cut || (longest_ == 0 && unit != 0 && unit < all);
      Found found;
      if (divides) found = find(unit);
      if (!is_cut) {
        take_of(found, taken);
        return true;
      }
      keep_cut(cut, divides ? moved(unit, found) : Cut{unit, unit});
    }
  }

 private:
  // A query tile: its place in all units.
  struct Found {
    int b;
    u32 column, tile;
    u32 begin, cost;
  };
  // A cut, and where the tile ends that it divides, if it does.
  struct Cut {
    u32 unit, next;
  };

  __device__ __forceinline__ void keep_cut(u32 number, const Cut& cut) {
    if (number == 0) {
      keep(KeptWord::begun, cut.unit);
      keep(KeptWord::begun_end, cut.next);
    } else {
      at_ = min(kept(KeptWord::begun_end), cut.unit);
      keep(KeptWord::end, cut.unit);
      keep(KeptWord::begun_end, at_);
    }
  }
  // The piece of a tile that another CTA has begun comes last.
  __device__ __forceinline__ bool has_next() {
    if (at_ < kept(KeptWord::end)) return true;
    const u32 end = kept(KeptWord::begun_end);
    at_ = kept(KeptWord::begun);
    keep(KeptWord::begun, ~0u);
    keep(KeptWord::end, end);
    return at_ < end;
  }

  // Units of an equal share are steps of keys. The ends of a tile take as long as 320 keys, writing
  // and joining partial results as 640 more. No cut is so near to the ends of a tile that less than
  // two steps would be left, and no piece has less than 640 keys.
  __device__ __forceinline__ u32 tile_ends() const { return ceil_div(320, block_kv()); }
  __device__ __forceinline__ u32 least_piece() const { return ceil_div(640, block_kv()); }
  __device__ __forceinline__ u32 joins() const { return least_piece(); }

  // Takes the piece at at_, which is of the tile that has been found.
  __device__ __forceinline__ void take_of(const Found& found, SequencePiece& taken) {
    const Sequence s = sequence_at(p_, found.b);
    const u32 end = found.begin + found.cost, stop = min(end, kept(KeptWord::end));
    const u32 share = kept(KeptWord::share);
    const u32 first_cta = (found.begin + near() - 1) / share;
    const u32 last_cta = max((end - min(end, near())) / share, first_cta);
    static_cast<SequencePlace&>(taken) = columns_.place(s, found.column, found.tile, block_q());
    taken.piece = static_cast<int>(blockIdx.x - first_cta);
    taken.pieces = static_cast<int>(last_cta - first_cta + 1);
    taken.first_cta = first_cta;
    // The tile has these steps, whatever it has been counted for.
    const u32 steps = steps_of(WholeTile(p_, taken));
    // Both CTAs at a cut round the same.
    const float of_unit = to_float(static_cast<int>(steps)) *
                          reciprocal_approx(to_float(static_cast<int>(found.cost - ends())));
    const auto step_at = [&](u32 units) {
      if (units == 0) return 0;
      if (units == found.cost) return static_cast<int>(steps);
      const float at = to_float(static_cast<int>(units - ends())) * of_unit;
      return min(static_cast<int>(at + 0.5f), static_cast<int>(steps));
    };
    taken.steps = {step_at(at_ - found.begin), step_at(stop - found.begin)};
    at_ = stop;
  }

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
  __device__ __forceinline__ Tally tally() {
    Tally all;
#pragma unroll 1
    for (int first = 0; first < p_.call.batch; first += 32) {
      SequenceCosts own = own_;
      if (first > 0 || longest_ == 0) own = measure(first);
      if (first == 0) own_ = own;
      const u32 longest = own.longest(tile_ends()), tiles = own.tiles * columns_.count();
      all.units += longest_ == 0 ? units_of(own) : tiles * pieces_of(longest);
      all.tiles += tiles;
      all.longest = max(all.longest, longest);
    }
    return {__reduce_add_sync(~0u, all.units), __reduce_add_sync(~0u, all.tiles),
            __reduce_max_sync(~0u, all.longest)};
  }

  // Decides how tiles are cut.
  __device__ __forceinline__ void settle() {
    u32 least = 0, serves = 0;
#pragma unroll 1
    while (true) {
      const Tally all = tally();
      if (longest_ == 0) {
        const u32 share =
            max(static_cast<u32>(ceil_div(all.units, gridDim.x)), least_piece() + tile_ends());
        keep(KeptWord::all, all.units);
        keep(KeptWord::share, share);
        if (all.tiles == 0 || all.tiles > gridDim.x) return;
        // As if all tiles were cut into equally many pieces, which is best where lengths are equal.
        least = max(share - min(share, tile_ends()), least_piece());
        serves = max(static_cast<u32>(ceil_div(all.longest, gridDim.x / all.tiles)), least);
        if (p_.call.batch == 1) least = serves;  // lengths are equal
      } else if (longest_ == serves) {
        // Equal shares begin anywhere, so that CTAs read the same keys at different times.
        const u32 share = kept(KeptWord::share);
        if (serves <= share + share / 8 + joins()) {
          keep(KeptWord::all, all.units);
          keep(KeptWord::share, 1);
        } else {
          longest_ = 0;
        }
        return;
      } else if (all.units <= gridDim.x) {
        serves = longest_;
      } else {
        least = longest_ + 1;
      }
      longest_ = least + least / 16 < serves ? (least + serves) / 2 : serves;
    }
  }

  // Requires: tiles are cut one by one. Returns the pieces of each tile of a sequence.
  __device__ __forceinline__ u32 pieces_of(u32 longest) const {
    return max(static_cast<u32>(ceil_div(longest, longest_)), 1u);
  }
  // As longest_ says.
  __device__ __forceinline__ SequenceCosts cut(SequenceCosts costs) const {
    if (longest_ != 0) costs.first = pieces_of(costs.longest(tile_ends())), costs.slope = 0;
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
    // Not unrolled, as a variant's code for ranges may be long.
    u32 first_steps = 0, last_steps = 0;
#pragma unroll 1
    for (u32 end = 0; end < 2; ++end) {
      first_steps = last_steps;
      last_steps = steps(end * (costs.tiles - 1));
    }
    costs.first = tile_ends() + first_steps;
    costs.slope = static_cast<int>(last_steps - first_steps) * 64 /
                  static_cast<int>(max(costs.tiles - 1, 1u));
    return costs;
  }

  // The tile that holds a unit of the share. Requires: there is one.
  __device__ __forceinline__ Found find(u32 unit) const {
    u32 before = 0;  // units of the sequences before
#pragma unroll 1
    for (int first = 0;; first += 32) {
      SequenceCosts own = own_;
      if (first > 0) own = measure(first);
      own = cut(own);
      const u32 units = units_of(own);
      const u32 up_to = sum_up_to_lane(units);  // of the sequences up to this lane's
      const u32 reaches = __ballot_sync(~0u, before + up_to > unit);
      if (reaches == 0 && first + 32 < p_.call.batch) {
        before += __shfl_sync(~0u, up_to, 31);
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

  // Where a cut is made instead of at a unit of a tile.
  __device__ __forceinline__ Cut moved(u32 unit, const Found& found) const {
    const u32 end = found.begin + found.cost;
    if (unit - found.begin < near()) return {found.begin, found.begin};
    return {end - unit < near() ? end : unit, end};
  }

  const AttentionVarlenParams& p_;
  TileColumns<WholeTile> columns_{p_};
  const Variant& variant_;
  SequenceCosts own_;  // of the lane's sequence among the first 32, before tiles are cut
  u32 longest_ = 0;    // steps of the longest piece where tiles are cut one by one, else 0
  u32 at_;             // of what has not been taken
};

}  // namespace kiln
