// Adds up the rows of each token's experts, weighted, in fp32 and in the order of its pairs.
// A rendered kernel calls moe_unpermute<Config>(params) with a Config of
//   Input, Output  the dtypes of y and of out
//   kWeights       whether there are weights; else each is 1
//   kVector        elements of an access; it divides the columns. Tensors begin, and rows follow
//                  each other, at multiples of kVector of their own elements or of 16 bytes,
//                  whichever is less
// The launch has unpermute_blocks() CTAs of kUnpermuteThreads threads.
#pragma once
#include "/kiln/base/pack.cuh"
#include "/kiln/moe_permute/params.h"

namespace kiln {

template <class Config>
__device__ __forceinline__ void moe_unpermute(const UnpermuteParams& p) {
  constexpr int kVector = Config::kVector, kTogether = 4;
  using Input = typename Config::Input;
  const u32 parts = (static_cast<u32>(p.columns) + 32 * kVector - 1) / (32 * kVector);
  const u32 i = blockIdx.x * (kUnpermuteThreads / 32) + threadIdx.x / 32;
  const u32 token = i / parts;
  const int first = ((i - token * parts) * 32 + threadIdx.x % 32) * kVector;
  if (token >= static_cast<u32>(p.tokens) || first >= p.columns) return;
  const int* const inverse = p.inverse + token * p.inverse_at.token;
  const float* const weights = p.weights + token * p.weights_at.token;
  float sums[kVector] = {};
  for (int start = 0; start < p.top_k; start += kTogether) {
    Pack<Input, kVector> rows[kTogether];
    float weight[kTogether];
    bool exists[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int k = start + j;
      const int row = k < p.top_k ? __ldg(inverse + k * p.inverse_at.k) : -1;
      exists[j] = row >= 0 && row < p.rows;
      weight[j] = 1.0f;
      if constexpr (Config::kWeights) {
        if (exists[j]) weight[j] = __ldg(weights + k * p.weights_at.k);
      }
      rows[j].load_once_from(static_cast<const Input*>(p.y) + (row * p.y_row + first), exists[j]);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        if (exists[j]) sums[c] += weight[j] * rows[j][c];
      }
    }
  }
  Pack<typename Config::Output, kVector> pack;
  pack.set(sums);
  pack.store_to(static_cast<typename Config::Output*>(p.out) +
                (static_cast<i64>(token) * p.out_row + first));
}

}  // namespace kiln
