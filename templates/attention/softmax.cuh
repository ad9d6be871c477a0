// Online softmax: the running maximum and sum of each row of a warp, and the rescaling of the
// output when the maximum grows. The state is kept in powers of two.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"

namespace kiln {

template <class Map>
struct OnlineSoftmax {
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
  // to the new maximum. A maximum is kept while it is too small by at most 2^kSlack for every row
  // of the warp: weights up to that size lose no precision, and most tiles then leave `out` alone.
  // `share(maximum)` exchanges the rows' maxima with the other warps that have scores of these
  // rows.
  template <class OutMap, class Share>
  __device__ __forceinline__ void step(Fragment<Map>& scores, Fragment<OutMap>& out, float scale,
                                       Share share) {
    float maximum[Map::kRows];
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      float largest = scores.at(r, 0);
#pragma unroll
      for (int c = 1; c < Map::kCols; ++c) largest = fmaxf(largest, scores.at(r, c));
      // The scaled maximum is kept, so that rescaling agrees with the weights to the last bit even
      // where logits are so large that the product is rounded.
      maximum[r] = fmaxf(row[r].max, Map::row_max(largest) * scale);
    }
    share(maximum);
    bool grows = false;
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) grows = grows || maximum[r] > row[r].max + kSlack;
    if (__any_sync(~0u, grows)) {
#pragma unroll
      for (int r = 0; r < Map::kRows; ++r) {
        const float shrink = exp2_approx(row[r].max - finite(maximum[r]));
        row[r] = {maximum[r], row[r].sum * shrink};
#pragma unroll
        for (int c = 0; c < OutMap::kCols; ++c) out.at(r, c) *= shrink;
      }
    }
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
      const float subtrahend = finite(row[r].max);
      float sum = 0.0f;
#pragma unroll
      for (int c = 0; c < Map::kCols; ++c) {
        const float weight = exp2_approx(fmaf(scores.at(r, c), scale, -subtrahend));
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
  static constexpr float kSlack = 8.0f;

  // Returns what is subtracted from a row's logits: 0 if it has seen no key, as -inf - -inf is NaN.
  __device__ __forceinline__ static float finite(float maximum) {
    return maximum == -KILN_INFINITY ? 0.0f : maximum;
  }
};

}  // namespace kiln
