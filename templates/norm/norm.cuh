// RMS norm and layer norm in one launch: a row is read once, stays in registers until its
// statistics are known and is written once. A rendered kernel calls norm<Config>(params) with a
// Config of
//   Input, Weight, Bias, Output     the dtypes: Input of x, residual and residual_out, the others
//                                   of weight, bias and out. An absent one has any of them
//   kNorm, kActivation              Norm::rms or layer; Activation::none, relu, gelu, ..
//   kWeight, kBias, kResidual       whether there is one
//   kVector                         elements of an access; it divides the columns. Tensors begin
//                                   and rows follow each other at multiples of kVector of their
//                                   own elements or of 16 bytes, whichever is less
//   kVectors, kThreadsPerRow        kVector * kVectors * kThreadsPerRow * kCluster is at least the
//                                   number of columns
//   kRowsPerBlock                   groups of kThreadsPerRow threads in a CTA, each with a row
//   kCluster                        CTAs that share a row: 1 or, from sm_90 on, 2 to 8, which the
//                                   launch sets as its cluster size
//   kEarlyWeights                   weights and bias are loaded with x and kept, not when needed
//   kStages                         0: a group of threads has one row. Otherwise (sm_80 and later,
//                                   vectors of 16 bytes) it loops over rows and keeps kStages of
//                                   the next ones in flight to shared memory, so that memory is
//                                   never idle while a row waits for its statistics or is written
// The launch has norm_blocks() CTAs or, with kStages, any smaller number of whole clusters, of
// kThreadsPerRow * kRowsPerBlock threads with norm_shared_bytes() of dynamic shared memory.
#pragma once
#include "/kiln/norm/exchange.cuh"
#include "/kiln/norm/lane.cuh"
#include "/kiln/norm/params.h"

namespace kiln {

template <class Config>
__device__ __forceinline__ void norm(const NormParams& params) {
  using Lane = NormLane<Config>;
  constexpr u32 kThreadsPerRow = Config::kThreadsPerRow, kRows = Config::kRowsPerBlock;
  constexpr u32 kStages = Config::kStages;
  const u32 rank = rank_of_row<Config>();
  const Lane lane(params, (rank * kThreadsPerRow + threadIdx.x % kThreadsPerRow) * Config::kVector);
  const float columns = static_cast<float>(params.columns);
  const float held = columns_of_rank<Config>(params.columns, rank);

  // Each group of threads has a row; `first` is the row of the CTA's first group.
  u32 first = blockIdx.x / Config::kCluster * kRows;
  const u32 group = threadIdx.x / kThreadsPerRow;
  const u32 step = gridDim.x / Config::kCluster * kRows;
  const u32 rows = params.rows;
  // Each call commits one group of copies, which is empty past the last row.
  const auto fetch = [&](u32 stage, u32 of_first_group) {
    if (of_first_group < rows) lane.fetch(stage, of_first_group + group);
    commit_copies<true>();
  };
  typename Lane::Loaded loaded;
  if constexpr (kStages == 0) {
    lane.load(loaded, first + group);
  } else {
    for (u32 stage = 0; stage < kStages; ++stage) fetch(stage, first + stage * step);
  }
  typename Lane::Weights weights;
  if constexpr (Config::kEarlyWeights) lane.load(weights);
  begin_exchange<Config>();
  const auto finish = [&](const typename Lane::Values& values, u32 turn) {
    const u32 row = first + group;
    lane.store_sums(values, row);
    const Statistics part = gather<Config>(lane, values, held, turn);
    const Statistics statistics = exchange<Config>(part, columns, rank, turn);
    lane.store(values, statistics.normalizer(params.eps), weights, row);
  };
  if constexpr (kStages == 0) {
    finish(typename Lane::Values(loaded), /*turn=*/0);
  } else {
    u32 stage = 0;
    for (u32 turn = 0; first < rows; ++turn, first += step) {
      lane.take(loaded, stage);
      const typename Lane::Values values(loaded);
      fetch(stage, first + kStages * step);
      finish(values, turn);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }
}

}  // namespace kiln
