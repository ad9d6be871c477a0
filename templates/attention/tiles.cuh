// The tile iterator: which tiles of keys a tile of queries visits, and which of them need a mask.
#pragma once
#include "/kiln/attention/variant.cuh"

namespace kiln {

struct KvTile {
  int first;  // its first key
  Tile kind;  // Tile::skip ends the walk
};

// Every tile of kBlockKv keys that the variant's range touches and tile() does not skip, in order.
template <int kBlockKv, class Variant>
class TileIterator {
 public:
  __device__ __forceinline__ TileIterator(const Variant& variant, const TileRows& rows)
      : variant_(variant), rows_(rows), range_(variant.kv_range(rows)) {
    range_.begin = max(range_.begin, 0);
    range_.end = max(range_.begin, min(range_.end, rows.len_kv));
    next_ = range_.begin / kBlockKv * kBlockKv;
  }

  // No key outside of it is visible, nor may be read.
  __device__ __forceinline__ Range range() const { return range_; }

  __device__ __forceinline__ KvTile next() {
    while (next_ < range_.end) {
      const int first = next_;
      next_ += kBlockKv;
      const Tile kind = classify(first);
      if (kind != Tile::skip) return {first, kind};
    }
    return {0, Tile::skip};
  }

 private:
  __device__ __forceinline__ Tile classify(int first) const {
    const int last = first + kBlockKv - 1;
    const bool cut = first < range_.begin || last >= range_.end;
    Tile kind = Tile::full;
    if constexpr (Variant::kMasks) {
      kind = variant_.tile(rows_.q_first, rows_.q_last, max(first, range_.begin),
                           min(last, range_.end - 1));
    }
    return kind == Tile::full && cut ? Tile::partial : kind;
  }

  const Variant& variant_;
  TileRows rows_;
  Range range_;
  int next_;
};

}  // namespace kiln
