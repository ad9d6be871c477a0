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

// Hides the keys outside of `range` and those that the variant's mask hides.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void mask_scores(Fragment<Map>& scores, const Variant& variant,
                                            const Addressing& addressing, int tile_row,
                                            int kv_first, Range range) {
#pragma unroll
  for (int c = 0; c < Map::kCols; ++c) {
    const int kv = kv_first + Map::col(c);
    const bool in_range = range.contains(kv);
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      bool visible = in_range;
      if constexpr (Variant::kMasks) {
        visible = visible & variant.keep(addressing.position(tile_row + Map::row(r), kv));
      }
      if (!visible) scores.at(r, c) = -KILN_INFINITY;
    }
  }
}

}  // namespace kiln
