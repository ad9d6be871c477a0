// Online softmax: the running maximum and sum of each row of a warp, and the rescaling of the
// output when the maximum grows. The state is kept in powers of two.
#pragma once
#include "/kiln/attention/cache.cuh"
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"

namespace kiln {

// kShares: other warps have scores of the same rows. kToBytes: weights are rounded to e4m3.
// kIsExact: settle() may be called.
template <class Map, bool kShares = false, bool kToBytes = false, bool kIsExact = false>
struct OnlineSoftmax {
  static constexpr int kRows = Map::kRows;
  RowSum row[Map::kRows];  // until finish(), the sums cover only this lane's columns
  // The bits of scores beyond which a row's maximum is raised; for grow_by_limits().
  int limit[Map::kRows];
  float most[Map::kRows];  // with kIsExact, the maxima of all logits so far, of this lane alone

  // Called before any tile; `initial(r)` returns the RowSum from which the lane's row r starts.
  template <class Initial>
  __device__ __forceinline__ void start(Initial initial) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      row[r] = initial(r);
      if constexpr (kIsExact) most[r] = row[r].max;
      if (!Map::leads_row()) row[r].sum = 0.0f;
    }
  }

  // Turns a tile's scores into weights 2^(scale * score - maximum), scale > 0, and rescales `out`
  // to the new maximum. `share(maximum)` exchanges the rows' maxima with the other warps that have
  // scores of these rows. A Scale is a float, RowScales, TiltedScale or
  // ShiftedScale.
  template <class OutMap, class Scale, class Share>
  __device__ __forceinline__ void step(Fragment<Map>& scores, Fragment<OutMap>& out,
                                       const Scale& scale, Share share) {
    grow(scores, scale, share, [&](int r, float shrink) {
#pragma unroll
      for (int c = 0; c < OutMap::kCols; ++c) out.at(r, c) *= shrink;
    });
    weigh(scores, scale);
  }

  // The first half of a step raises the rows' maxima to those of `scores`; shrink(r, factor) is
  // then called for every row, as the accumulators of outputs must be multiplied by the factor. A
  // maximum is kept while it is too small by at most 2^kSlack for every row of the warp: weights up
  // to that size lose no precision, and most tiles then leave the outputs alone. Returns whether
  // shrink() was called.
  template <class Scale, class Share, class Shrink>
  __device__ __forceinline__ bool grow(Fragment<Map>& scores, const Scale& scale, Share share,
                                       Shrink shrink) {
    float maximum[Map::kRows];
    bool grows = false;
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      // Two chains of comparisons take half as long as one.
      float largest = scores.at(r, 0), other = scores.at(r, 1);
#pragma unroll
      for (int c = 2; c < Map::kCols; c += 2) {
        largest = fmaxf(largest, scores.at(r, c));
        other = fmaxf(other, scores.at(r, c + 1));
      }
      // The scaled maximum is kept, so that rescaling agrees with the weights to the last bit even
      // where logits are so large that the product is rounded.
      largest = logit_of(scale, r, fmaxf(largest, other));
      if constexpr (kIsExact && !kShares) most[r] = fmaxf(most[r], largest);
      if constexpr (kToBytes) largest -= kLift;
      maximum[r] = fmaxf(row[r].max, largest);
      if constexpr (kShares) maximum[r] = Map::row_max(maximum[r]);
    }
    share(maximum);
    if constexpr (kIsExact && kShares) {
#pragma unroll
      for (int r = 0; r < Map::kRows; ++r) most[r] = fmaxf(most[r], maximum[r]);
    }
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) grows = grows || maximum[r] > row[r].max + kSlack;
    // The lanes of a row need not compare their maxima first: one that grows too much is enough.
    grows = __any_sync(~0u, grows);
    if (grows) raise(maximum, shrink);
    return grows;
  }

  // Does what grow() does, in most tiles with half of the comparisons: Hopper has an instruction
  // for the largest of three integers, and none for that of three floats. Positive floats are
  // ordered as integers are, so that scores can be compared with limits as integers. A row whose
  // limit is not positive always exceeds it, and is searched by floats.
  template <class Scale, class Shrink>
  __device__ __forceinline__ bool grow_by_limits(Fragment<Map>& scores, const Scale& scale,
                                                 Shrink shrink) {
    static_assert(!kShares, "softmax: limits hold for rows of one warp");
    static_assert(!kIsExact, "softmax: integers do not order negative maxima");
    int largest[Map::kRows];
    bool exceeds = false;
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      largest[r] = largest_bits(scores, r);
      exceeds = exceeds || largest[r] >= limit[r];
    }
    if (!__any_sync(~0u, exceeds)) return false;
    bool ordered = true;
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) ordered = ordered && limit[r] != kNoLimit;
    bool grows = true;
    if (__all_sync(~0u, ordered)) {
      float maximum[Map::kRows];
#pragma unroll
      for (int r = 0; r < Map::kRows; ++r) {
        const float most = largest[r] < 0 ? -KILN_INFINITY : __int_as_float(largest[r]);
        maximum[r] = fmaxf(row[r].max, most * scale_of(scale, r) - kLift);
      }
      raise(maximum, shrink);
    } else {
      grows = grow(scores, scale, [](auto&) {}, shrink);
    }
    set_limits(scale);
    return grows;
  }

  // Called when step() has raised maxima, ahead of grow_by_limits().
  template <class Scale>
  __device__ __forceinline__ void set_limits(const Scale& scale) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      // A little less than the quotient, so that no rounding lets a larger score pass.
      const float inverse = reciprocal_approx(scale_of(scale, r)) * (1.0f - 0x1p-20f);
      const float most = (row[r].max + (kLift + kSlack)) * inverse;
      limit[r] = most > 0.0f ? __float_as_int(most) : kNoLimit;
    }
  }

  // The second half turns the scores into weights and adds these up.
  template <class Scale>
  __device__ __forceinline__ void weigh(Fragment<Map>& scores, const Scale& scale) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      const float subtrahend = finite(row[r].max) - shift_of(scale, r);
      float sum = 0.0f;
#pragma unroll
      for (int c = 0; c < Map::kCols; ++c) {
        const float weight = exp2_approx(fmaf(scores.at(r, c), scale_of(scale, r), -subtrahend));
        scores.at(r, c) = weight;
        sum += weight;
      }
      row[r].sum += sum;
    }
  }

  // Called after all tiles and ahead of finish(): raises the rows' maxima, which may be too small,
  // to those of all logits. shrink() is that of grow().
  template <class Shrink>
  __device__ __forceinline__ void settle(Shrink shrink) {
    raise(most, shrink);
  }

  // Called after all tiles. `share(sums)` adds the sums of the other warps with keys of these rows.
  template <class Share>
  __device__ __forceinline__ void finish(Share share) {
    float sums[Map::kRows];
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) sums[r] = Map::row_sum(row[r].sum);
    share(sums);
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) row[r].sum = sums[r];
  }

 private:
  // A maximum is kept too small by kLift on purpose. The largest e4m3 is 448, and its least with
  // all digits 2^-6: weights up to 2^8 leave those of all keys that are less likely by up to 2^11
  // as exact as others.
  static constexpr float kLift = kToBytes ? 5.0f : 0.0f;
  static constexpr float kSlack = kToBytes ? 3.0f : 8.0f;
  static constexpr int kNoLimit = -0x7fffffff - 1;

  // Raises maxima to those of all lanes, and sums accordingly.
  template <class Shrink>
  __device__ __forceinline__ void raise(float (&maximum)[Map::kRows], Shrink shrink) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      if constexpr (!kShares) maximum[r] = Map::row_max(maximum[r]);
      const float factor = exp2_approx(row[r].max - finite(maximum[r]));
      row[r] = {maximum[r], row[r].sum * factor};
      shrink(r, factor);
    }
  }

  // The bits of the lane's largest score of row r if that is positive, else some negative number.
  __device__ __forceinline__ static int largest_bits(Fragment<Map>& scores, int r) {
    int largest = __float_as_int(scores.at(r, 0)), other = __float_as_int(scores.at(r, 1));
#pragma unroll
    for (int c = 2; c < Map::kCols; c += 2) {
      largest = max(largest, __float_as_int(scores.at(r, c)));
      other = max(other, __float_as_int(scores.at(r, c + 1)));
    }
    return max(largest, other);
  }

  // Returns what is subtracted from a row's logits: 0 if it has seen no key, as -inf - -inf is NaN.
  __device__ __forceinline__ static float finite(float maximum) {
    return maximum == -KILN_INFINITY ? 0.0f : maximum;
  }
};

// For variants that take maxima.
template <class Softmax, class OutMap>
__device__ __forceinline__ void settle(Softmax& softmax, Fragment<OutMap>& out) {
  softmax.settle([&](int r, float factor) {
#pragma unroll
    for (int c = 0; c < OutMap::kCols; ++c) out.at(r, c) *= factor;
  });
}

}  // namespace kiln
