// A mask may show this of a tile: the pairs of a query and a key in it, as intervals of the query,
// of the key and of their distance, and the tile() and kv_range() that follow from them.
//
// The library reads a user's mask and writes two functions of such a box, may_show(box) and
// may_hide(box): whether the mask may be true, or false, for some pair. A conjunction first narrows
// the box by those of its parts that bound the query, the key or the distance; nothing is left of
// a box in which they contradict each other. That makes the usual masks exact.
#pragma once
#include "/kiln/attention/element_bounds.cuh"
#include "/kiln/attention/interval.cuh"
#include "/kiln/attention/variant.cuh"

namespace kiln {

// Positions and distances are at most this in magnitude.
inline constexpr int kFarthest = 1 << 30;

struct MaskBox {
  Interval q, kv, distance;  // distance: q - kv
  int b, len_q, len_kv;

  __device__ __forceinline__ int shift() const { return len_kv - len_q; }
  __device__ __forceinline__ Interval row() const { return {q.low - shift(), q.high - shift()}; }

  // Makes each interval as narrow as the other two allow; false if no pair is left.
  __device__ __forceinline__ bool close() {
    if (empty()) return false;
    distance = {max(distance.low, q.low - kv.high), min(distance.high, q.high - kv.low)};
    if (empty()) return false;
    kv = {max(kv.low, q.low - distance.high), min(kv.high, q.high - distance.low)};
    q = {max(q.low, kv.low + distance.low), min(q.high, kv.high + distance.high)};
    return !empty();
  }
  // The keys of the pairs that are left.
  __device__ __forceinline__ Interval keys() { return close() ? kv : Interval{0, -1}; }

 private:
  __device__ __forceinline__ bool empty() const {
    return q.empty() | kv.empty() | distance.empty();
  }
};

// Parts of a conjunction: they bound one interval of its box.
__device__ __forceinline__ void keep_less(Interval& of, Interval than) {
  of.high = min(of.high, max(than.high, kLeastInt + 1) - 1);
}
__device__ __forceinline__ void keep_at_most(Interval& of, Interval than) {
  of.high = min(of.high, than.high);
}
__device__ __forceinline__ void keep_more(Interval& of, Interval than) {
  of.low = max(of.low, min(than.low, kLargestInt - 1) + 1);
}
__device__ __forceinline__ void keep_at_least(Interval& of, Interval than) {
  of.low = max(of.low, than.low);
}
__device__ __forceinline__ void keep_equal(Interval& of, Interval to) {
  of = {max(of.low, to.low), min(of.high, to.high)};
}

// Clamps `value` to kFarthest in magnitude: it then compares with any position or distance as
// before, and adding a position and 1 cannot overflow.
__device__ __forceinline__ int near(i64 value) {
  const i64 farthest = kFarthest;
  return static_cast<int>(max(-farthest, min(value, farthest)));
}
__device__ __forceinline__ int near(int value) { return max(-kFarthest, min(value, kFarthest)); }

// The keys begin .. end - 1 of a row as VariantDefaults::visible() returns them: the difference of
// its ends is an int.
__device__ __forceinline__ Range run_of_keys(const Position& row, int begin, int end) {
  return {min(begin, row.len_kv), max(end, 0)};
}

// The hull of two runs of keys, of which each may be empty.
__device__ __forceinline__ Interval hull_of_runs(Interval a, Interval b) {
  return a.empty() ? b : b.empty() ? a : hull(a, b);
}

// `bound` says what a position is compared with after terms have changed sides. Where the sum of
// the `terms` that stood beside a position might overflow, it is everything().
__device__ __forceinline__ Interval unless_overflowing(Interval terms, Interval bound) {
  return terms.low > -kFarthest && terms.high < kFarthest ? bound : everything();
}

__device__ __forceinline__ MaskBox box_of(const TileRows& rows, int kv_first, int kv_last) {
  const Interval q = {rows.q_first, rows.q_last}, kv = {kv_first, kv_last};
  return {q, kv, {q.low - kv.high, q.high - kv.low}, rows.b, rows.len_q, rows.len_kv};
}

template <class Mask>
__device__ __forceinline__ Tile tile_of(const Mask& mask, const TileRows& rows, int kv_first,
                                        int kv_last) {
  const MaskBox box = box_of(rows, kv_first, kv_last);
  if (!mask.may_show(box)) return Tile::skip;
  return mask.may_hide(box) ? Tile::partial : Tile::full;
}

// Returns the keys that comparisons with the rows' positions bound: the rows see none outside.
template <class Mask>
__device__ __forceinline__ Range compared_range_of(const Mask& mask, const TileRows& rows) {
  const Interval keys = mask.keys_within(box_of(rows, 0, rows.len_kv - 1));
  return keys.empty() ? Range{0, 0} : Range{keys.low, keys.high + 1};
}

// Returns the keys outside of which the rows see none. Where the mask shows a row one run of keys,
// these are the keys that its comparisons bound. Otherwise it is to within a step of 64 from either
// end: the same, less the largest runs that can be cut off, then smaller ones. That takes two
// evaluations of the mask for each doubling of the keys between the bounds.
template <class Mask>
__device__ __forceinline__ Range range_of(const Mask& mask, const TileRows& rows) {
  constexpr int kStep = 64;
  const Range keys = compared_range_of(mask, rows);
  if (Mask::kMasksByRange || keys.begin == keys.end) return keys;
  int begin = keys.begin / kStep, end = (keys.end - 1) / kStep + 1;
  int run = 1;
  while (run <= (end - begin) / 2) run *= 2;
#pragma unroll 1
  for (; run > 0; run /= 2) {
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      if (end - begin < run) break;
      const int first = side == 0 ? begin : end - run;
      const int last = min((first + run) * kStep, rows.len_kv) - 1;
      if (mask.may_show(box_of(rows, first * kStep, last))) continue;
      begin += side == 0 ? run : 0;
      end -= side == 0 ? 0 : run;
    }
  }
  if (begin >= end) return {0, 0};
  return {begin * kStep, min(end * kStep, rows.len_kv)};
}

}  // namespace kiln
