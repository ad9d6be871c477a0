// RMS norm and layer norm in two launches, for few rows of many columns and for rows that no CTA
// can hold. norm_partial<Config>(params) writes the statistics of each part of each row to the
// workspace. norm_apply<Config>(params) joins those of its row and normalizes its part, which it
// reads again, mostly from L2.
//
// The Config is norm()'s, with kRowsPerBlock 1, kCluster 1, kStages 0 and kThreadsPerRow at least
// 32. A part is the columns of a CTA, norm_cta_columns(). There is one more field:
//   kOverlaps    from sm_90 on: the second launch is a programmatic dependent launch, which loads
//                its rows while the first still runs. The first must be an ordinary launch, because
//                the second does not wait for what comes before it
// Both launch params.rows * params.splits CTAs; CTA i has part i % splits of row i / splits.
#pragma once
#include "/kiln/base/launches.cuh"
#include "/kiln/norm/exchange.cuh"
#include "/kiln/norm/lane.cuh"
#include "/kiln/norm/params.h"

namespace kiln {

template <class Config>
struct NormPart {
  using Shape = NormShape<Config>;
  static_assert(Config::kRowsPerBlock == 1 && Config::kCluster == 1 && Shape::kLanes == 32 &&
                    Config::kStages == 0,
                "norm: in two launches a CTA of 32 threads or more has a part of one row");
  u32 row;
  int first;    // the thread's first column
  float count;  // number of columns of the part

  __device__ __forceinline__ explicit NormPart(const NormParams& params) {
    const u32 splits = params.splits;
    row = blockIdx.x / splits;
    const int begin = blockIdx.x % splits * Shape::kCtaColumns;
    const int rest = params.columns - begin;
    first = begin + threadIdx.x * Config::kVector;
    count = static_cast<float>(rest < Shape::kCtaColumns ? rest : Shape::kCtaColumns);
  }
};

template <class Config>
__device__ __forceinline__ void norm_partial(const NormParams& params) {
  using Lane = NormLane<Config>;
  let_dependents_begin<Config::kOverlaps>();
  const NormPart<Config> part(params);
  const Lane lane(params, part.first);
  typename Lane::Loaded loaded;
  lane.load(loaded, part.row);
  const typename Lane::Values values(loaded);
  const Statistics statistics = gather<Config>(lane, values, part.count, /*turn=*/0);
  if (threadIdx.x == 0) {
    static_cast<float4*>(params.workspace)[blockIdx.x] = statistics.to_quad();
  }
}

template <class Config>
__device__ __forceinline__ void norm_apply(const NormParams& params) {
  using Lane = NormLane<Config>;
  const NormPart<Config> part(params);
  const Lane lane(params, part.first);
  typename Lane::Loaded loaded;
  lane.load(loaded, part.row);
  typename Lane::Weights weights;
  if constexpr (Config::kEarlyWeights) lane.load(weights);
  // The first write must wait too: the other launch may still read what is overwritten in place.
  wait_for_launches<Config::kOverlaps>();
  const typename Lane::Values values(loaded);
  lane.store_sums(values, part.row);
  const float4* const quads =
      static_cast<const float4*>(params.workspace) + static_cast<i64>(part.row) * params.splits;
  const Statistics statistics = join_parts<Config::kNorm, 32>(
      params.splits, static_cast<float>(params.columns),
      [&](int i) { return Statistics::from_quad(__ldcg(quads + i)); });
  lane.store(values, statistics.normalizer(params.eps), weights, part.row);
}

}  // namespace kiln
