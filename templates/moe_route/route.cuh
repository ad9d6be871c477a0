// Chooses the experts of tokens and weighs them, a warp for each token, whose lane l has the
// experts l, l + 32, l + 64 .. A rendered kernel calls moe_route<Config>(params) with a Config of
//   Input, Bias  the dtypes of logits and of bias; an absent bias has any
//   kScoring     what makes scores of logits
//   kBias        whether a bias is added to scores, for the choice alone
//   kExperts     the most experts, a multiple of 32
// The launch has route_blocks() CTAs of kRouteThreads threads.
#pragma once
#include "/kiln/base/lanes.cuh"
#include "/kiln/base/math.cuh"
#include "/kiln/moe_route/params.h"

namespace kiln {

enum class Scoring { softmax, sigmoid };

// Numbers in the order of what they are made of: NaN is the largest, and none is 0.
__device__ __forceinline__ u32 order_of(float x) {
  const u32 bits = __float_as_uint(x + 0.0f);  // the zeros are one
  const u32 order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return x == x ? order : 0xffffffffu;
}

// The largest of the warp's numbers, and the least index that has it. A 0 is no candidate.
struct Winner {
  u32 order, index;

  __device__ __forceinline__ Winner(u32 order_of_lane, u32 index_of_lane) {
    order = __reduce_max_sync(~0u, order_of_lane);
    index = __reduce_min_sync(~0u, order_of_lane == order ? index_of_lane : ~0u);
  }
};

// A lane's experts.
template <class Config>
struct Candidates {
  static constexpr int kEach = Config::kExperts / 32;
  static_assert(Config::kExperts % 32 == 0, "moe_route: kExperts must be a multiple of 32");

  float scores[kEach];
  float choices[kEach];  // what experts are chosen by
  u32 orders[kEach];     // of the choices; 0: not to be chosen

  __device__ __forceinline__ Candidates(const RouteParams& p, u32 token) {
    const auto* const logits =
        static_cast<const typename Config::Input*>(p.logits) + token * p.logits_row;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + lane;
      choices[i] = expert < p.experts ? to_float(logits[expert]) : -KILN_INFINITY;
    }
    score(p);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + lane;
      if constexpr (Config::kBias) {
        const auto* const bias = static_cast<const typename Config::Bias*>(p.bias);
        if (expert < p.experts) choices[i] = scores[i] + to_float(bias[expert * p.bias_stride]);
      } else if constexpr (Config::kScoring == Scoring::sigmoid) {
        choices[i] = scores[i];
      }
      orders[i] = expert < p.experts ? order_of(choices[i]) : 0;
    }
  }

  // Excludes the experts of groups whose bit is not set.
  __device__ __forceinline__ void keep(u32 groups, int group_size) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int group = (i * 32 + static_cast<int>(threadIdx.x % 32)) / group_size;
      if (group >= 32 || (groups >> group & 1) == 0) orders[i] = 0;
    }
  }

  // Takes the best expert of the warp; returns it and its score.
  __device__ __forceinline__ u32 take(float& score_of_best) {
    u32 order = 0, at = 0;
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (orders[i] > order) order = orders[i], at = i, score = scores[i];
    }
    const Winner winner(order, at * 32 + threadIdx.x % 32);
    score_of_best = __shfl_sync(~0u, score, winner.index % 32);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (winner.index == i * 32 + threadIdx.x % 32) orders[i] = 0;
    }
    return winner.index;
  }

 private:
  // The choices hold logits.
  __device__ __forceinline__ void score(const RouteParams& p) {
    if constexpr (Config::kScoring == Scoring::sigmoid) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) scores[i] = 1.0f / (1.0f + expf(-choices[i]));
      return;
    }
    float most = choices[0];
#pragma unroll
    for (float choice : choices) most = fmaxf(most, choice);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + threadIdx.x % 32;
      scores[i] = expert < p.experts ? expf(choices[i] - most) : 0.0f;
      sum += scores[i];
    }
    const float share = 1.0f / sum_lanes<32>(sum);
#pragma unroll
    for (float& score : scores) score *= share;
  }
};

// The best groups of a token, as bits. A group's score is its best choice or, with a bias, the sum
// of its two best.
template <class Config>
__device__ __forceinline__ u32 best_groups(const RouteParams& p,
                                           const Candidates<Config>& candidates) {
  __shared__ float of_warps[kRouteThreads / 32][Config::kExperts];
  float* const choices = of_warps[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Candidates<Config>::kEach; ++i) {
    choices[i * 32 + lane] = candidates.choices[i];
  }
  __syncwarp();
  const int size = p.experts / p.groups;
  u32 order = 0;
  if (lane < p.groups) {
    float best = choices[lane * size], second = -KILN_INFINITY;
    for (int i = 1; i < size; ++i) {
      const float one = choices[lane * size + i];
      const bool leads = order_of(one) > order_of(best);
      const float behind = leads ? best : one;
      if (order_of(behind) > order_of(second)) second = behind;
      if (leads) best = one;
    }
    order = order_of(Config::kBias && size > 1 ? best + second : best);
  }
  u32 chosen = 0;
  for (int i = 0; i < p.top_groups; ++i) {
    const Winner winner(order, lane);
    chosen |= 1u << winner.index;
    if (winner.index == static_cast<u32>(lane)) order = 0;
  }
  return chosen;
}

template <class Config>
__device__ __forceinline__ void moe_route(const RouteParams& p) {
  const u32 token = blockIdx.x * (kRouteThreads / 32) + threadIdx.x / 32;
  if (token >= static_cast<u32>(p.tokens)) return;
  const int lane = threadIdx.x % 32;
  Candidates<Config> candidates(p, token);
  if (p.top_groups < p.groups) {
    candidates.keep(best_groups(p, candidates), p.experts / p.groups);
  }
  float weight = 0.0f;
  u32 expert = 0;
  for (int k = 0; k < p.top_k; ++k) {
    float score;
    const u32 best = candidates.take(score);
    if (lane == k) weight = score, expert = best;
  }
  // So small a number only keeps 0 / 0 away.
  if (p.renormalize) weight /= sum_lanes<32>(weight) + 1e-20f;
  if (lane < p.top_k) {
    p.weights[token * p.weights_row + lane * p.weights_k] = weight * p.scale;
    p.chosen[token * p.chosen_row + lane * p.chosen_k] = static_cast<int>(expert);
  }
}

}  // namespace kiln
