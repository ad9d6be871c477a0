// Applies a variant's logit and mask hooks to a tile of scores through the fragment map.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"

namespace kiln {

// The positions of a lane's logits in a row.
template <class Map, class Variant>
class RowPositions {
 public:
  RowPositions() = default;
  // `row`: the position that hooks for a whole row get. `kv_first`: the tile's first key.
  __device__ __forceinline__ RowPositions(const Position& row, int kv_first)
      : row_(row), first_(kv_first + Map::col(0)), distance_(to_float(row.q - first_)) {}

  __device__ __forceinline__ Position operator()(int column) const {
    const int offset = Map::col(column) - Map::col(0);
    Position at = row_;
    at.kv = first_ + offset;
    // Without this minimum, what an expression computes of keys is shared by all columns.
    if constexpr (Variant::kIndexesByKey) at.kv = min(at.kv, at.len_kv - 1);
    at.row_distance = distance_;
    at.column = to_float(offset);
    at.distance = at.row_distance - at.column;
    return at;
  }

 private:
  Position row_;
  int first_;  // key of column 0
  float distance_;
};

template <bool kNarrow, bool kLeavesFactor, class Map, class Variant, class Addressing>
__device__ __forceinline__ void transform_each(Fragment<Map>& scores, const Variant& variant,
                                               const Addressing& addressing, int tile_row,
                                               int kv_first, float scale) {
  const float after = kLeavesFactor ? 1.0f : variant.factor_after();
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const RowPositions<Map, Variant> position(addressing.position(tile_row + Map::row(r), 0),
                                              kv_first);
    constexpr int kStep = Variant::kTakesTwo ? 2 : 1;
#pragma unroll
    for (int c = 0; c < Map::kCols; c += kStep) {
      if constexpr (Variant::kTakesTwo) {
        const Two<float> logits = variant.template logits_of_two<kNarrow>(
            {scores.at(r, c) * scale, scores.at(r, c + 1) * scale}, position(c), position(c + 1));
        scores.at(r, c) = logits.first * after;
        scores.at(r, c + 1) = logits.second * after;
      } else {
        scores.at(r, c) =
            variant.template logits<kNarrow>(scores.at(r, c) * scale, position(c)) * after;
      }
    }
  }
}

// Whether the tile's keys are all far before, or all far behind, each of this lane's rows.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ bool all_far(const Variant& variant, const Addressing& addressing,
                                        int tile_row, int kv_first) {
  const int first = kv_first + Map::col(0), last = kv_first + Map::col(Map::kCols - 1);
  bool all = true;
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const Position row = addressing.position(tile_row + Map::row(r), 0);
    const int distance = variant.far_distance(row);
    all &= row.q - last >= distance || first - row.q >= distance;
  }
  return all;
}

// Computes logits = scale * score + bias_at(kv - q). Called by a whole warp, whose 16 rows are
// neighbours, so that a tile has few distances: the lanes read 32 biases at a time, every 16
// distances, and hand them round. Those of a lane's pair of columns are then all in one register,
// and serve two logits, as the lane's rows are as far apart as its pairs of columns.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void add_biases(Fragment<Map>& scores, const Variant& variant,
                                           const Addressing& addressing, int tile_row, int kv_first,
                                           float scale) {
  static_assert(Map::kRows == 2, "add_biases: a lane has two rows, 8 apart");
  const Position at = addressing.position(tile_row, 0);
  // The least of this lane's to read: the first one of all is that of the first key and the last
  // row.
  const int distance = kv_first - at.q - 15 + static_cast<int>(threadIdx.x % 32);
  const int from = 7 + Map::col(0) - Map::row(0);
  float biases = 0.0f;
#pragma unroll
  for (int c = -2; c < Map::kCols; c += 2) {
    const int eights = c / 2 + 1;
    if (eights % 2 == 0) biases = variant.bias_at(at, distance + eights * 8);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float bias = __shfl_sync(~0u, biases, from + eights % 2 * 8 + i);
      if (c >= 0) scores.at(0, c + i) = fmaf(scores.at(0, c + i), scale, bias);
      if (c + 2 < Map::kCols) scores.at(1, c + 2 + i) = fmaf(scores.at(1, c + 2 + i), scale, bias);
    }
  }
}

// Computes logits = hooks(|scale| * score) for every element, even padding, which is masked later.
// Called by a whole warp. kLeavesFactor: but for the variant's factor_after().
template <bool kLeavesFactor, class Map, class Variant, class Addressing>
__device__ __forceinline__ void transform_logits(Fragment<Map>& scores, const Variant& variant,
                                                 const Addressing& addressing, int tile_row,
                                                 int kv_first, float scale) {
  scale *= variant.factor_before();
  bool takes_long = false;
  if constexpr (Variant::kHasDistanceBias) {
    takes_long = !all_far<Map>(variant, addressing, tile_row, kv_first);
  }
  if constexpr (Variant::kNarrows) {
    float largest = 0.0f;
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < Map::kCols; ++c) largest = fmaxf(largest, fabsf(scores.at(r, c)));
    }
    takes_long |= largest * scale > variant.narrow_limit();
  }
  if constexpr (Variant::kHasDistanceBias || Variant::kNarrows) {
    if (!__any_sync(~0u, takes_long)) {
      transform_each<true, kLeavesFactor>(scores, variant, addressing, tile_row, kv_first, scale);
      return;
    }
  }
  transform_each<false, kLeavesFactor>(scores, variant, addressing, tile_row, kv_first, scale);
}

// The neighbouring keys that a mask is asked about at once.
template <class Variant>
inline constexpr int kMaskStep = Variant::kKeeps && Variant::kTakesTwo ? 2 : 1;

// Hides a row's keys of column c and the next ones of a step, but for those that are among the
// `count` keys from the `first`-th one on, by column 0, and that the variant keeps.
template <class Map, class Variant>
__device__ __forceinline__ void mask_step(Fragment<Map>& scores, const Variant& variant,
                                          const RowPositions<Map, Variant>& position, int r, int c,
                                          u32 first, u32 count) {
  constexpr int kStep = kMaskStep<Variant>;
  bool kept[kStep];
  if constexpr (kStep == 2) {
    const Two<bool> two = variant.keep_two(position(c), position(c + 1));
    kept[0] = two.first, kept[1] = two.second;
  } else if constexpr (Variant::kKeeps) {
    kept[0] = variant.keep(position(c));
  } else {
    kept[0] = true;
  }
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    const bool visible = first + (Map::col(c + i) - Map::col(0)) < count;
    if (!(visible & kept[i])) scores.at(r, c + i) = -KILN_INFINITY;
  }
}

// Hides keys column by column: mask_scores() below.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void mask_columns(Fragment<Map>& scores, const Variant& variant,
                                             const Addressing& addressing, int tile_row,
                                             int kv_first, Range range) {
  RowPositions<Map, Variant> positions[Map::kRows];
  u32 first[Map::kRows], count[Map::kRows];
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const Position row = addressing.position(tile_row + Map::row(r), 0);
    Range shown = range;
    if constexpr (Variant::kMasksByRange) shown = intersection(range, variant.visible(row));
    count[r] = max(shown.end - shown.begin, 0);
    first[r] = kv_first + Map::col(0) - shown.begin;  // wraps around below shown.begin
    positions[r] = RowPositions<Map, Variant>(row, kv_first);
  }
#pragma unroll
  for (int c = 0; c < Map::kCols; c += kMaskStep<Variant>) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      mask_step(scores, variant, positions[r], r, c, first[r], count[r]);
    }
  }
}

// Hides the keys outside of `range` and of visible_run(), and asks no keep().
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void mask_by_range(Fragment<Map>& scores, const Variant& variant,
                                              const Addressing& addressing, int tile_row,
                                              int kv_first, Range range) {
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    Range shown = range;
    if constexpr (Variant::kShowsRuns) {
      const Position at = addressing.position(tile_row + Map::row(r), kv_first);
      shown = intersection(range, variant.visible_run(at));
    }
    const u32 count = max(shown.end - shown.begin, 0);
    const u32 first = kv_first + Map::col(0) - shown.begin;  // wraps around below shown.begin
#pragma unroll
    for (int c = 0; c < Map::kCols; ++c) {
      if (first + (Map::col(c) - Map::col(0)) >= count) scores.at(r, c) = -KILN_INFINITY;
    }
  }
}

// A variant as mask_scores() asks it about a partial tile within a block.
template <class Variant>
struct InBlock {
  const Variant& variant;
  static constexpr bool kKeeps = true, kTakesTwo = false;
  static constexpr bool kKeepsByColumn = Variant::kKeepsByColumn;
  static constexpr bool kMasksByRange = Variant::kMasksByRange;
  static constexpr bool kIndexesByKey = Variant::kIndexesByKey;
  __device__ __forceinline__ bool keep(const Position& at) const {
    return variant.keep_in_block(at);
  }
  __device__ __forceinline__ Range visible(const Position& row) const {
    return variant.visible(row);
  }
};

// Hides the keys outside of `range` and those that the variant's mask hides. It works row by row,
// so that the part of a mask that depends only on the row is evaluated once, or column by column.
template <class Map, class Variant, class Addressing>
__device__ __forceinline__ void mask_scores(Fragment<Map>& scores, const Variant& variant,
                                            const Addressing& addressing, int tile_row,
                                            int kv_first, Range range) {
  if constexpr (Variant::kKeepsByColumn) {
    mask_columns(scores, variant, addressing, tile_row, kv_first, range);
    return;
  }
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const Position row = addressing.position(tile_row + Map::row(r), 0);
    Range shown = range;
    if constexpr (Variant::kMasksByRange) shown = intersection(range, variant.visible(row));
    const u32 count = max(shown.end - shown.begin, 0);
    const u32 first = kv_first + Map::col(0) - shown.begin;  // wraps around below shown.begin
    const RowPositions<Map, Variant> position(row, kv_first);
#pragma unroll
    for (int c = 0; c < Map::kCols; c += kMaskStep<Variant>) {
      mask_step(scores, variant, position, r, c, first, count);
    }
  }
}

}  // namespace kiln
