// The variants behind the keyword arguments softcap, alibi_slopes, attn_mask, causal, window,
// tree_mask and sinks. The host writes their Slots in this order.
#pragma once
#include "/kiln/attention/variant.cuh"

namespace kiln {

// Keeps the keys with kv <= q.
struct Causal : DefaultHooks<Causal> {
  static constexpr bool kIndexesByKey = false;
  static constexpr bool kShowsFirstKeys = true;
  static constexpr bool kMasks = true;
  static constexpr bool kMasksByRange = true;

  __device__ __forceinline__ Range visible(const Position& row) const { return {0, row.q + 1}; }
  __device__ __forceinline__ Range kv_range(const TileRows& rows) const {
    return {0, rows.q_last + 1};
  }
  __device__ __forceinline__ Tile tile(int q_first, int q_last, int kv_first, int kv_last) const {
    if (kv_first > q_last) return Tile::skip;
    return kv_last <= q_first ? Tile::full : Tile::partial;
  }
};

// Keeps q - left <= kv <= q + right. A bound may be 2^30 (open), q 2^30 - 2: sums just fit an int.
struct Window : DefaultHooks<Window> {
  static constexpr bool kIndexesByKey = false;
  Slot<int> left, right;
  static constexpr bool kMasks = true;
  static constexpr bool kMasksByRange = true;

  __device__ __forceinline__ Range visible(const Position& row) const {
    return {row.q - left, row.q + right + 1};
  }
  __device__ __forceinline__ Range kv_range(const TileRows& rows) const {
    const i64 begin = static_cast<i64>(rows.q_first) - left.value;
    const i64 end = static_cast<i64>(rows.q_last) + right.value + 1;
    const i64 all = rows.len_kv;
    return {static_cast<int>(max(0ll, min(begin, all))), static_cast<int>(max(0ll, min(end, all)))};
  }
  __device__ __forceinline__ Tile tile(int q_first, int q_last, int kv_first, int kv_last) const {
    if (q_first - kv_last > left || kv_first - q_last > right) return Tile::skip;
    const bool full = q_last - kv_first <= left && kv_last - q_first <= right;
    return full ? Tile::full : Tile::partial;
  }
};

// Keeps q - left <= kv <= q + right and, of sequences whose flag is set, kv <= q. `right` is at
// least 0. Bounds as Window's.
struct CausalEach : DefaultHooks<CausalEach> {
  static constexpr bool kIndexesByKey = false;
  Slot<const int*> flags;  // [batch]
  Slot<int> left, right;
  static constexpr bool kMasks = true;
  static constexpr bool kMasksByRange = true;

  __device__ __forceinline__ Range visible(const Position& row) const {
    return {row.q - left.value, row.q + right_of(row.b) + 1};
  }
  __device__ __forceinline__ Range kv_range(const TileRows& rows) const {
    const i64 begin = static_cast<i64>(rows.q_first) - left.value;
    const i64 end = static_cast<i64>(rows.q_last) + right_of(rows.b) + 1;
    const i64 all = rows.len_kv;
    return {static_cast<int>(max(0ll, min(begin, all))), static_cast<int>(max(0ll, min(end, all)))};
  }
  // A tile does not know its sequence: the answer holds with the flag and without.
  __device__ __forceinline__ Tile tile(int q_first, int q_last, int kv_first, int kv_last) const {
    if (q_first - kv_last > left || kv_first - q_last > right) return Tile::skip;
    return q_last - kv_first <= left && kv_last <= q_first ? Tile::full : Tile::partial;
  }

 private:
  __device__ __forceinline__ int right_of(int b) const {
    return load_constant(flags.value + b) != 0 ? 0 : right.value;
  }
};

// Keeps those of the last len_q keys of a sequence, at most 64, whose bits a query's word has, the
// first in bit 0, and all keys before them. Words lie as the queries do: packed, or [batch,
// len_q].
struct Tree : DefaultHooks<Tree> {
  static constexpr bool kIndexesByKey = false;
  Slot<const u64*> words;
  Slot<i64> batch_stride, row_stride;
  static constexpr bool kMasks = true;
  static constexpr bool kKeepsByColumn = false;
  static constexpr bool kTilesBySequence = true;

  __device__ __forceinline__ bool keep(const Position& at) const {
    const i64 row = at.first_q + at.row;
    const u64 word = __ldg(words.value + at.b * batch_stride.value + row * row_stride.value);
    const int bit = at.kv - (at.len_kv - at.len_q);
    return bit < 0 || (word >> (bit & 63) & 1) != 0;
  }
  __device__ __forceinline__ Tile tile(const TileRows& rows, int, int kv_last) const {
    return kv_last < rows.len_kv - rows.len_q ? Tile::full : Tile::partial;
  }
};

// Computes cap * tanh(logit / cap).
struct Softcap : DefaultHooks<Softcap> {
  static constexpr bool kIndexesByKey = false;
  Slot<float> cap;
  static constexpr bool kTransformsLogits = true;

  __device__ __forceinline__ float factor_before() const { return reciprocal_approx(cap); }
  __device__ __forceinline__ float factor_after() const { return cap; }
  __device__ __forceinline__ float logits(float logit, const Position&) const {
    return tanh_of_logit(logit);
  }
  // Without an instruction for it, tanh takes two operations of the unit that computes exponents,
  // and a weight takes a third, so that this unit would bound the kernel. Up to 0.4, a minimax
  // polynomial without any has a relative error of 1.7e-7.
  static constexpr bool kNarrows = !kHasTanh;
  __device__ __forceinline__ float narrow_limit() const { return 0.4f; }
  __device__ __forceinline__ float narrow_logits(float logit, const Position&) const {
    const float square = logit * logit;
    const float series = fmaf(square, fmaf(square, -0.0477942192f, 0.13277629f), -0.333318823f);
    return fmaf(logit * square, series, logit);
  }
};

// Computes logit - slope * |q - kv|, with one slope for each head. kPast: no query sees a key
// behind itself, so that the difference needs no magnitude and is an addition within a
// multiplication for each logit.
template <bool kPast>
struct Alibi : DefaultHooks<Alibi<kPast>> {
  static constexpr bool kIndexesByKey = false;
  Slot<const float*> slopes;
  Slot<i64> batch_stride, head_stride;
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kTilts = kPast;

  __device__ __forceinline__ float logits(float logit, const Position& at) const {
    const float slope = tilt(at);
    if constexpr (kPast) return logit + fmaf(slope, at.column, -slope * at.row_distance);
    return logit - slope * fabsf(at.distance);
  }
  __device__ __forceinline__ float tilt(const Position& at) const {
    return load_constant(slopes.value + at.b * batch_stride.value + at.h * head_stride.value);
  }
};

// Loads two neighbouring elements at once. Tensors [batch, heads, len_q, len_kv] allow this if keys
// are contiguous and even in number, other strides are even and the address is aligned to a pair.
template <class T>
__device__ __forceinline__ auto load_two(const VariantTensor<T, 4>& tensor, const Position& at) {
  const i64 row = at.b * tensor.strides[0].value + at.h * tensor.strides[1].value +
                  at.row * tensor.strides[2].value;
  const T* address = tensor.data.value + row + static_cast<u32>(at.kv & ~1);
  if constexpr (is_same<T, bool>) {
    const u32 bits = __ldg(reinterpret_cast<const u16*>(address));
    return Two<bool>{(bits & 0xff) != 0, bits >> 8 != 0};
  } else if constexpr (sizeof(T) == 2) {
    const u32 bits = __ldg(reinterpret_cast<const u32*>(address));
    return Two<float>{to_float(T{static_cast<u16>(bits)}),
                      to_float(T{static_cast<u16>(bits >> 16)})};
  } else {
    const float2 both = __ldg(reinterpret_cast<const float2*>(address));
    return Two<float>{both.x, both.y};
  }
}

// The caller's tensors [batch, heads, len_q, len_kv], with stride 0 where they broadcast. A mask is
// true where the key is visible; a bias is added to the logit. kPairs selects load_two().
template <bool kPairs>
struct MaskTensor : DefaultHooks<MaskTensor<kPairs>> {
  VariantTensor<bool, 4> shown;
  static constexpr bool kMasks = true;
  static constexpr bool kKeepsByColumn = false;
  static constexpr bool kTakesTwo = kPairs;

  __device__ __forceinline__ bool keep(const Position& at) const {
    return shown.at(at.b, at.h, at.row, at.kv);
  }
  __device__ __forceinline__ Two<bool> keep_two(const Position& at) const {
    return load_two(shown, at);
  }
};
// Many masks hide keys with the most negative float instead of -inf. A row of only such keys must
// be the mean of all values, as in the textbook, but at that size the rounding of a logit alone,
// times log2(e), overflows an exponent. Logits are clamped to kLeast, where a weight beside
// ordinary logits is already 0. A NaN stays NaN, as in PyTorch: it is an error in the caller's data
// that must show.
template <class T, bool kPairs>
struct BiasTensor : DefaultHooks<BiasTensor<T, kPairs>> {
  VariantTensor<T, 4> bias;
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kTakesTwo = kPairs;
  static constexpr float kLeast = -0x1p23f;

  __device__ __forceinline__ float logits(float logit, const Position& at) const {
    return sum(logit, bias.at(at.b, at.h, at.row, at.kv));
  }
  __device__ __forceinline__ Two<float> logits_of_two(Two<float> logits, const Position& at) const {
    const Two<float> added = load_two(bias, at);
    return {sum(logits.first, added.first), sum(logits.second, added.second)};
  }

 private:
  __device__ __forceinline__ static float sum(float logit, float added) {
    return added == -KILN_INFINITY ? added : at_least(logit + added);
  }
  // Returns the larger of x and kLeast, or NaN where fmaxf() would return kLeast. Compilers for
  // sm_100 and later turn the comparison into max.NaN, but move the constant for each use of an
  // explicit one. Those for earlier GPUs need up to 19 more registers for the comparison.
  __device__ __forceinline__ static float at_least(float x) {
    float larger = x < kLeast ? kLeast : x;
    if constexpr (__CUDA_ARCH__ < 1000) {
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(kLeast));
    }
    return larger;
  }
};

// Adds one unscaled logit for each head, which takes weight but has no value.
template <class T>
struct Sinks : DefaultHooks<Sinks<T>> {
  static constexpr bool kIndexesByKey = false;
  Slot<const T*> sinks;
  Slot<i64> head_stride;
  static constexpr bool kFinishesRows = true;

  __device__ __forceinline__ void row_finish(RowSum& sum, const Position& row) const {
    sum.add(load_constant(sinks.value + row.h * head_stride.value));
  }
};

}  // namespace kiln
