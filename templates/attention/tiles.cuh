// The tile iterator decides which tiles of keys a tile of queries visits and which need a mask.
#pragma once
#include "/kiln/attention/variant.cuh"

namespace kiln {

__device__ __forceinline__ Range within_sequence(Range range, const TileRows& rows) {
  const int begin = max(range.begin, 0);
  return {begin, max(begin, min(range.end, rows.len_kv))};
}
// Returns the keys outside of which `rows` see none.
template <class Variant>
__device__ __forceinline__ Range visible_range(const Variant& variant, const TileRows& rows) {
  return within_sequence(variant.kv_range(rows), rows);
}
// The same for a mask that is applied to tiles that a walk within visible_range() has found.
template <class Variant>
__device__ __forceinline__ Range binding_range(const Variant& variant, const TileRows& rows) {
  return within_sequence(variant.binding_range(rows), rows);
}

// Visits in order the tiles of kBlockKv keys that the variant's range touches and tile() does not
// skip: in a run of steps of kTeams tiles, every kTeams-th tile from the `team`-th.
template <int kBlockKv, int kTeams, class Variant>
class TileIterator {
 public:
  // The `split`-th of `splits` equal runs.
  __device__ __forceinline__ TileIterator(const Variant& variant, const TileRows& rows, int split,
                                          int splits, int team)
      : variant_(variant), rows_(rows), range_(visible_range(variant, rows)) {
    int first = range_.begin / kBlockKv * kBlockKv;
    if (splits > 1) {
      const int share = ceil_div(ceil_div(range_.end - first, kStep), splits) * kStep;
      first = min(first + split * share, range_.end);
      range_.begin = max(range_.begin, first);
      range_.end = min(range_.end, first + share);
    }
    next_ = first + team * kBlockKv;
  }
  // The steps in `run`, counted from the first visible tile.
  __device__ __forceinline__ TileIterator(const Variant& variant, const TileRows& rows, Range run,
                                          int team)
      : variant_(variant), rows_(rows), range_(visible_range(variant, rows)) {
    const int visible = range_.begin / kBlockKv * kBlockKv;
    const int steps = ceil_div(range_.end - visible, kStep);
    const int first = min(visible + min(run.begin, steps) * kStep, range_.end);
    range_.begin = max(range_.begin, first);
    range_.end = max(range_.begin, min(range_.end, visible + min(run.end, steps) * kStep));
    next_ = first + team * kBlockKv;
  }

  // No key outside of this range is visible, and none may be read.
  __device__ __forceinline__ Range range() const { return range_; }

  // Returns the first key of the next tile, or kEnd after the last.
  static constexpr int kEnd = 0x7fffffff;
  __device__ __forceinline__ int next() {
    while (next_ < range_.end) {
      const int first = next_;
      next_ += kBlockKv * kTeams;
      // A mask by range hides no tile between the ends of its range.
      if (!Variant::kKeeps || kind(first, rows_) != Tile::skip) return first;
    }
    return kEnd;
  }
  // Returns what `rows`, queries of the tile, see of the tile of keys that starts at `first`.
  // asks_keep: whether a keep() has to say it; otherwise it is a matter of ranges.
  __device__ __forceinline__ Tile kind(int first, const TileRows& rows, bool& asks_keep) const {
    const bool cut = first < range_.begin || first + kBlockKv > range_.end;
    Tile kind = Tile::full;
    if constexpr (Variant::kMasks) {
      kind = variant_.tile(rows, max(first, range_.begin), min(first + kBlockKv, range_.end) - 1,
                           asks_keep);
      // The keys of the tile that such a range leaves out are left to keep(). Where tiles lie
      // within blocks, these are keys behind the last alone.
      constexpr bool kLeaves =
          Variant::kRangeFollowsKeep && !Variant::template kKeepsInBlocks<64, kBlockKv>;
      if (kLeaves && cut) asks_keep = true;
    }
    return kind == Tile::full && cut ? Tile::partial : kind;
  }
  __device__ __forceinline__ Tile kind(int first, const TileRows& rows) const {
    bool asks_keep;
    return kind(first, rows, asks_keep);
  }
  // Whether any query of the tile may see any of these keys.
  __device__ __forceinline__ bool may_see(int first, int last) const {
    return variant_.tile(rows_, first, last) != Tile::skip;
  }

 private:
  static constexpr int kStep = kBlockKv * kTeams;

  const Variant& variant_;
  TileRows rows_;
  Range range_;
  int next_;
};

}  // namespace kiln
