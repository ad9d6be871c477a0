// Applies a variant's logit and mask hooks to a tile of scores, through the fragment map.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"

namespace kiln {

// logits = hooks(|scale| * score), for every element: of padding too, which is masked afterwards.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void transform_logits(Fragment<Map>& scores, const Variant& variant,
                                                 const Addressing& addressing, int tile_row,
                                                 int kv_first, float scale) {
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < Map::kCols; ++c) {
      const Position at = addressing.position(tile_row + Map::row(r), kv_first + Map::col(c));
      scores.at(r, c) = variant.logits(scores.at(r, c) * scale, at);
    }
  }
}

// Hides the keys outside of `range` and those that the variant's mask hides. Row by row, so that
// what a mask asks of a row is asked once.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void mask_scores(Fragment<Map>& scores, const Variant& variant,
                                            const Addressing& addressing, int tile_row,
                                            int kv_first, Range range) {
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const int row = tile_row + Map::row(r);
    Range shown = range;
    if constexpr (Variant::kMasksByRange) {
      shown = intersection(range, variant.visible(addressing.position(row, 0)));
    }
    const u32 count = max(shown.end - shown.begin, 0);
    const u32 first = kv_first + Map::col(0) - shown.begin;  // wraps below the run
#pragma unroll
    for (int c = 0; c < Map::kCols; ++c) {
      bool visible = first + (Map::col(c) - Map::col(0)) < count;
      if constexpr (Variant::kKeeps) {
        visible = visible & variant.keep(addressing.position(row, kv_first + Map::col(c)));
      }
      if (!visible) scores.at(r, c) = -KILN_INFINITY;
    }
  }
}

}  // namespace kiln
