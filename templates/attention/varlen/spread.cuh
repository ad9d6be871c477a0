// Keys that are spread over the devices of a group, as context parallelism does: in turn, each
// device has `run` neighbouring keys of a sequence. The kernel counts the keys of its own device,
// which lie in order; variants are asked about positions in the whole sequence.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/attention/variant.cuh"
#include "/kiln/attention/varlen/divisor.cuh"

namespace kiln {

// The position of a device's own key.
__device__ __forceinline__ int spread_position(const AttentionSpread& spread, int key) {
  return key + quotient(key, spread.run) * (spread.round.by - spread.run.by) + spread.first;
}
// Counts a device's own keys before a position, which may be negative.
__device__ __forceinline__ int spread_keys(const AttentionSpread& spread, int position) {
  const int before = max(position, 0), rounds = quotient(before, spread.round);
  const int in_round = before - rounds * spread.round.by - spread.first;
  return rounds * spread.run.by + min(max(in_round, 0), spread.run.by);
}

// A call's variant, as the kernel sees it. What it gets and returns are the device's own keys, and
// queries at their positions in the whole sequence.
template <class Variant>
class SpreadVariant {
 public:
  static constexpr bool kTransformsLogits = Variant::kTransformsLogits;
  static constexpr bool kMasks = Variant::kMasks;
  static constexpr bool kMasksByRange = Variant::kMasksByRange;
  static constexpr bool kKeeps = Variant::kKeeps;
  static constexpr bool kKeepsByColumn = Variant::kKeepsByColumn;
  static constexpr bool kRangeFollowsKeep = Variant::kRangeFollowsKeep;
  static constexpr bool kNarrows = Variant::kNarrows && !Variant::kHasDistanceBias;
  // Neighbouring keys are not at neighbouring positions.
  static constexpr bool kHasDistanceBias = false;
  static constexpr bool kIndexesByKey = Variant::kIndexesByKey;
  static constexpr bool kStartsRows = false, kFinishesRows = false, kTransformsOutput = false;
  static constexpr bool kTakesMaxima = false;
  static constexpr bool kTakesTwo = false;
  template <int kRows, int kKeys>
  static constexpr bool kKeepsInBlocks = false;
  static_assert(!Variant::kStartsRows && !Variant::kFinishesRows && !Variant::kTransformsOutput &&
                    !Variant::kTakesMaxima,
                "flash_attention: with cp_world, each device computes a part of a row, so that a "
                "variant must not change rows or outputs, nor take maxima");
  static_assert(!Variant::kTakesTwo,
                "flash_attention: with cp_world, neighbouring keys are not at neighbouring "
                "positions, so that a variant must not take two");

  __device__ __forceinline__ SpreadVariant(const Variant& variant, const AttentionSpread& spread)
      : variant_(variant), spread_(spread) {}

  template <bool kNarrow>
  __device__ __forceinline__ float logits(float logit, const Position& at) const {
    return variant_.template logits<kNarrow>(logit, whole(at));
  }
  __device__ __forceinline__ float factor_before() const { return variant_.factor_before(); }
  __device__ __forceinline__ float factor_after() const { return variant_.factor_after(); }
  __device__ __forceinline__ float narrow_limit() const { return variant_.narrow_limit(); }
  __device__ __forceinline__ bool keep(const Position& at) const {
    return variant_.keep(whole(at));
  }
  __device__ __forceinline__ Range visible(const Position& row) const {
    Position at = row;
    at.len_kv = length(row);
    return own(variant_.visible(at));
  }
  __device__ __forceinline__ Range kv_range(const TileRows& rows) const {
    return own(variant_.kv_range(whole(rows)));
  }
  __device__ __forceinline__ Tile tile(const TileRows& rows, int kv_first, int kv_last,
                                       bool& asks_keep) const {
    return variant_.tile(whole(rows), spread_position(spread_, kv_first),
                         spread_position(spread_, kv_last), asks_keep);
  }

 private:
  // The length of the whole sequence.
  __device__ __forceinline__ static int length(const Position& at) {
    return at.q - at.row + at.len_q;
  }
  __device__ __forceinline__ Position whole(const Position& own) const {
    Position at = own;
    at.kv = spread_position(spread_, own.kv);
    at.len_kv = length(own);
    at.row_distance = at.distance = to_float(at.q - at.kv);
    at.column = 0.0f;
    return at;
  }
  __device__ __forceinline__ TileRows whole(const TileRows& own) const {
    TileRows rows = own;
    rows.len_kv = __ldg(spread_.totals + own.b);
    return rows;
  }
  __device__ __forceinline__ Range own(const Range& whole) const {
    return {spread_keys(spread_, whole.begin), spread_keys(spread_, whole.end)};
  }

  const Variant& variant_;
  const AttentionSpread& spread_;
};

}  // namespace kiln
