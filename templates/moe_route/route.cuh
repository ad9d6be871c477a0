// Chooses the experts of tokens and weighs them, a warp for each token, whose lane l has the
// experts l, l + 32, l + 64 .. A rendered kernel calls moe_route<Config>(params) with a Config of
//   Input, Bias  the dtypes of logits and of bias; an absent bias has any
//   kScoring     what makes scores of logits
//   kBias        whether a bias is added to scores, for the choice alone
//   kExperts     the most experts, 32 times a power of two
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
__device__ __forceinline__ float of_order(u32 order) {
  return __uint_as_float(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}

// An expert that may be chosen: the larger order comes first, then the smaller number.
struct Candidate {
  u32 order;   // of its choice; 0: not to be chosen
  u32 behind;  // the complement of its number

  __device__ __forceinline__ bool precedes(const Candidate& other) const {
    const auto key = [](const Candidate& one) { return u64{one.order} << 32 | one.behind; };
    return key(*this) > key(other);
  }
};

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
  static_assert(Config::kExperts % 32 == 0 && (kEach & (kEach - 1)) == 0,
                "moe_route: kExperts must be 32 times a power of two");

  float scores[kEach];
  Candidate of_lane[kEach];

  __device__ __forceinline__ Candidates(const RouteParams& p, u32 token) {
    const auto* const logits =
        static_cast<const typename Config::Input*>(p.logits) + token * p.logits_row;
    const int lane = threadIdx.x % 32;
    float choices[kEach];  // what experts are chosen by: logits, then scores if these are used
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + lane;
      choices[i] = expert < p.experts ? to_float(logits[expert]) : -KILN_INFINITY;
    }
    score(p, choices);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + lane;
      if constexpr (Config::kBias) {
        const auto* const bias = static_cast<const typename Config::Bias*>(p.bias);
        if (expert < p.experts) choices[i] = scores[i] + to_float(bias[expert * p.bias_stride]);
      } else if constexpr (Config::kScoring == Scoring::sigmoid) {
        choices[i] = scores[i];
      }
      of_lane[i] = {expert < p.experts ? order_of(choices[i]) : 0, ~static_cast<u32>(expert)};
    }
  }

  // Excludes the experts of groups whose bit is not set.
  __device__ __forceinline__ void keep(u32 groups, int group_size) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int group = (i * 32 + static_cast<int>(threadIdx.x % 32)) / group_size;
      if (group >= 32 || (groups >> group & 1) == 0) of_lane[i].order = 0;
    }
  }

  // Puts the lane's candidates in order, by a bitonic network.
  __device__ __forceinline__ void sort() {
#pragma unroll
    for (int size = 2; size <= kEach; size *= 2) {
#pragma unroll
      for (int apart = size / 2; apart > 0; apart /= 2) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          if ((i & apart) != 0) continue;
          Candidate &one = of_lane[i], &other = of_lane[i + apart];
          const bool swaps = (i & size) == 0 ? other.precedes(one) : one.precedes(other);
          const Candidate first = swaps ? other : one;
          other = swaps ? one : other;
          one = first;
        }
      }
    }
  }
  // Takes the best expert of the warp. Requires: sort() was called.
  __device__ __forceinline__ u32 take() {
    const u32 own = ~of_lane[0].behind;
    const Winner winner(of_lane[0].order, own);
    if (winner.index == own) {
#pragma unroll
      for (int i = 1; i < kEach; ++i) of_lane[i - 1] = of_lane[i];
      of_lane[kEach - 1].order = 0;
    }
    return winner.index;
  }
  // Returns the score of the expert that a lane asks for.
  __device__ __forceinline__ float score_of(u32 expert) const {
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float one = __shfl_sync(~0u, scores[i], expert % 32);
      if (expert / 32 == i) score = one;
    }
    return score;
  }

 private:
  __device__ __forceinline__ void score(const RouteParams& p, const float (&logits)[kEach]) {
    if constexpr (Config::kScoring == Scoring::sigmoid) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) scores[i] = 1.0f / (1.0f + expf(-logits[i]));
      return;
    }
    float most = logits[0];
#pragma unroll
    for (float logit : logits) most = fmaxf(most, logit);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + threadIdx.x % 32;
      scores[i] = expert < p.experts ? expf(logits[i] - most) : 0.0f;
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
  __shared__ u32 of_warps[kRouteThreads / 32][Config::kExperts];
  u32* const orders = of_warps[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Candidates<Config>::kEach; ++i) {
    orders[i * 32 + lane] = candidates.of_lane[i].order;
  }
  __syncwarp();
  const int size = p.experts / p.groups;
  u32 order = 0;
  if (lane < p.groups) {
    // Lanes begin at different experts of their groups, which use different banks.
    u32 best = 0, second = 0;
    int at = lane % size;
#pragma unroll 4
    for (int i = 0; i < size; ++i) {
      const u32 one = orders[lane * size + at];
      second = max(second, min(best, one));
      best = max(best, one);
      at = at + 1 == size ? 0 : at + 1;
    }
    order = Config::kBias && size > 1 ? order_of(of_order(best) + of_order(second)) : best;
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
  candidates.sort();
  u32 expert = 0;
  for (int k = 0; k < p.top_k; ++k) {
    const u32 best = candidates.take();
    if (lane == k) expert = best;
  }
  const float score = candidates.score_of(expert);
  float weight = lane < p.top_k ? score : 0.0f;
  // So small a number only keeps 0 / 0 away.
  if (p.renormalize) weight /= sum_lanes<32>(weight) + 1e-20f;
  if (lane < p.top_k) {
    p.weights[token * p.weights_row + lane * p.weights_k] = weight * p.scale;
    p.chosen[token * p.chosen_row + lane * p.chosen_k] = static_cast<int>(expert);
  }
}

}  // namespace kiln
