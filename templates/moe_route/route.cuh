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
#include "/kiln/moe_route/groups.cuh"
#include "/kiln/moe_route/params.h"

namespace kiln {

enum class Scoring { softmax, sigmoid };

// Returns 1 / x of x from 1 on, rounded to nearest as a division does, which here has a branch: the
// choice is then that of scores by PyTorch, to the last bit. Results below 2^-126 are 0.
__device__ __forceinline__ float reciprocal_from_one(float x) {
  const float about = reciprocal_approx(x);
  return x < 0x1p126f ? fmaf(about, fmaf(-x, about, 1.0f), about) : about;
}

// The scores of a token's logits.
template <class Config>
struct Scores {
  float most = 0.0f;   // of softmax: the largest logit,
  float share = 1.0f;  // and one over the sum of the exponents

  template <int kEach>
  __device__ __forceinline__ explicit Scores(const float (&logits)[kEach]) {
    if constexpr (Config::kScoring == Scoring::sigmoid) return;
    most = logits[0];
#pragma unroll
    for (float logit : logits) most = fmaxf(most, logit);
    most = max_lanes<32>(most);
    float sum = 0.0f;
#pragma unroll
    for (float logit : logits) sum += exp2_approx((logit - most) * kLog2e);
    share = 1.0f / sum_lanes<32>(sum);
  }

  __device__ __forceinline__ float of(float logit) const {
    if constexpr (Config::kScoring == Scoring::sigmoid) {
      return reciprocal_from_one(1.0f + expf(-logit));
    } else {
      return expf(logit - most) * share;
    }
  }
};

template <class Config>
__device__ __forceinline__ void moe_route(const RouteParams& p) {
  static_assert(Config::kExperts % 32 == 0, "moe_route: each lane of a warp has as many experts");
  constexpr int kEach = Config::kExperts / 32;
  const u32 token = blockIdx.x * (kRouteThreads / 32) + threadIdx.x / 32;
  if (token >= static_cast<u32>(p.tokens)) return;
  const int lane = threadIdx.x % 32;
  const auto* const row =
      static_cast<const typename Config::Input*>(p.logits) + token * p.logits_row;
  // Experts that do not exist are chosen last: they have the least logit, or choice, and the
  // highest numbers.
  float logits[kEach], biases[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = i * 32 + lane;
    logits[i] = expert < p.experts ? to_float(row[expert]) : -KILN_INFINITY;
    if constexpr (Config::kBias) {
      const auto* const bias = static_cast<const typename Config::Bias*>(p.bias);
      biases[i] = expert < p.experts ? to_float(bias[expert * p.bias_stride]) : 0.0f;
    }
  }
  const Scores<Config> scores(logits);
  Candidates<kEach> candidates;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = i * 32 + lane;
    float choice = logits[i];
    if constexpr (Config::kBias) {
      choice = scores.of(choice) + biases[i];
      if (expert >= p.experts) choice = -KILN_INFINITY;
    } else if constexpr (Config::kScoring == Scoring::sigmoid) {
      choice = scores.of(choice);
    }
    candidates.of_lane[i] = {order_of(choice), ~static_cast<u32>(expert)};
  }
  if (p.top_groups < p.groups) {
    candidates.keep(best_groups<Config::kBias>(p, candidates), p.experts / p.groups);
  }

  u32 expert = 0;  // lane k has the k-th best
  if (kEach < kLongLane || !best_of_few(candidates, p.top_k, expert)) {
    candidates.sort();
    for (int k = 0; k < p.top_k; ++k) {
      const u32 best = candidates.take();
      if (lane == k) expert = best;
    }
  }
  float weight = lane < p.top_k ? scores.of(to_float(row[expert])) : 0.0f;
  // So small a number only keeps 0 / 0 away.
  if (p.renormalize) weight /= sum_lanes<32>(weight) + 1e-20f;
  if (lane < p.top_k) {
    p.weights[token * p.weights_row + lane * p.weights_k] = weight * p.scale;
    p.chosen[token * p.chosen_row + lane * p.chosen_k] = static_cast<int>(expert);
  }
}

}  // namespace kiln
