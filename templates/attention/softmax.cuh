// Online softmax: the running maximum and sum of each row of a warp, and the rescaling of the
// output when the maximum grows. The state is kept in powers of two.
#pragma once
#include "/kiln/attention/cache.cuh"
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"

namespace kiln {

// kShares: other warps have scores of the same rows. kToBytes: weights are rounded to e4m3.
template <class Map, bool kShares = false, bool kToBytes = false>
struct OnlineSoftmax {
  static constexpr int kRows = Map::kRows;
  RowSum row[Map::kRows];  // until finish(), the sums cover only this lane's columns

  // Called before any tile; `initial(r)` returns the RowSum from which the lane's row r starts.
  template <class Initial>
  __device__ __forceinline__ void start(Initial initial) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      row[r] = initial(r);
      if (!Map::leads_row()) row[r].sum = 0.0f;
    }
  }

  // Turns a tile's scores into weights 2^(scale * score - maximum), scale > 0, and rescales `out`
  // to the new maximum. `share(maximum)` exchanges the rows' maxima with the other warps that have
  // scores of these rows. A Scale is a float or RowScales.
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
      largest = fmaxf(largest, other) * scale_of(scale, r);
      if constexpr (kToBytes) largest -= kLift;
      maximum[r] = fmaxf(row[r].max, largest);
      if constexpr (kShares) maximum[r] = Map::row_max(maximum[r]);
    }
    share(maximum);
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) grows = grows || maximum[r] > row[r].max + kSlack;
    // The lanes of a row need not compare their maxima first: one that grows too much is enough.
    grows = __any_sync(~0u, grows);
    if (grows) {
#pragma unroll
      for (int r = 0; r < Map::kRows; ++r) {
        if constexpr (!kShares) maximum[r] = Map::row_max(maximum[r]);
        const float factor = exp2_approx(row[r].max - finite(maximum[r]));
        row[r] = {maximum[r], row[r].sum * factor};
        shrink(r, factor);
      }
    }
    return grows;
  }

  // The second half turns the scores into weights and adds these up.
  template <class Scale>
  __device__ __forceinline__ void weigh(Fragment<Map>& scores, const Scale& scale) {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      const float subtrahend = finite(row[r].max);
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

  // Returns what is subtracted from a row's logits: 0 if it has seen no key, as -inf - -inf is NaN.
  __device__ __forceinline__ static float finite(float maximum) {
    return maximum == -KILN_INFINITY ? 0.0f : maximum;
  }
};

}  // namespace kiln
