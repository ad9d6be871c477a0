// The portable GEMM (sm_80 and later): cp.async into a ring of shared-memory stages, ldmatrix and
// mma.sync. A rendered kernel calls gemm<Config, Epilogue>(params); the host renders both types.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/base/mma.cuh"
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/fragments.cuh"
#include "/kiln/gemm/load.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/raster.cuh"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

template <class T>
inline constexpr bool is_gemm_element = is_same<T, f16> || is_same<T, bf16> || is_same<T, float>;

// What follows from a Config, and what it must fulfil.
template <class Config>
struct GemmShape {
  using Input = typename Config::Input;
  static constexpr bool kHalfAccumulator = is_same<typename Config::Accumulator, f16>;
  static constexpr int kWarpM = Config::kBlockM / Config::kWarpsM;
  static constexpr int kWarpN = Config::kBlockN / Config::kWarpsN;
  static constexpr int kThreads = Config::kWarpsM * Config::kWarpsN * 32;
  static constexpr int kSteps = Config::kBlockK * static_cast<int>(sizeof(Input)) / 32;

  static_assert(is_gemm_element<Input>, "gemm: Input must be f16, bf16 or float (tf32)");
  static_assert(is_gemm_element<typename Config::Output>,
                "gemm: Output must be f16, bf16 or float");
  static_assert(is_same<typename Config::Accumulator, float> ||
                    (kHalfAccumulator && is_same<Input, f16>),
                "gemm: Accumulator must be float, or f16 when Input is f16");
  static_assert(Config::kBlockM >= 16 && Config::kBlockM <= 256 && Config::kBlockN >= 16 &&
                    Config::kBlockN <= 256,
                "gemm: kBlockM and kBlockN must be 16 to 256");
  static_assert(kWarpM % 16 == 0 && kWarpM * Config::kWarpsM == Config::kBlockM,
                "gemm: kBlockM must be a multiple of 16 * kWarpsM");
  static_assert(kWarpN % 16 == 0 && kWarpN * Config::kWarpsN == Config::kBlockN,
                "gemm: kBlockN must be a multiple of 16 * kWarpsN");
  static_assert(kWarpM * kWarpN <= 64 * 64 * (kHalfAccumulator ? 2 : 1),
                "gemm: a warp's tile must hold at most 64 x 64 fp32 accumulators");
  static_assert(kSteps >= 2 && kSteps % 2 == 0 && kSteps * 32 == Config::kBlockK * sizeof(Input),
                "gemm: kBlockK must be a multiple of 64 bytes of Input");
  static_assert(Config::kStages >= 2 && Config::kStages <= 8, "gemm: kStages must be 2 to 8");
  static_assert(kThreads <= 1024, "gemm: kWarpsM * kWarpsN must be at most 32");

  using TileA = OperandTile<Input, Config::kMajorA, Config::kBlockM, Config::kBlockK>;
  using TileB = OperandTile<Input, Config::kMajorB, Config::kBlockN, Config::kBlockK>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  static constexpr int kSharedBytes = kStageBytes * Config::kStages;
  static_assert(kSharedBytes == gemm_shared_bytes(Config::kBlockM, Config::kBlockN, Config::kBlockK,
                                                  Config::kStages, sizeof(Input)),
                "gemm: the host must ask for the shared memory that the kernel uses");
  static_assert(kSharedBytes <= 227 * 1024, "gemm: the stages must fit in 227 KB");
  static_assert(EpilogueRows<kWarpN>::kBytes * kThreads / 32 <= kSharedBytes,
                "gemm: the stages must hold 16 rows of fp32 of every warp; use a larger kBlockK, "
                "more stages or fewer warps");

  using LoaderA = TileLoader<TileA, kThreads, Config::kAlignedLoads>;
  using LoaderB = TileLoader<TileB, kThreads, Config::kAlignedLoads>;
  using FragmentsA = FragmentLoader<TileA, true, kWarpM>;
  using FragmentsB = FragmentLoader<TileB, false, kWarpN>;
  using Accumulator = conditional<kHalfAccumulator, u32[2], float[4]>;  // of 16 x 8 outputs
};

// One tensor-core step of a warp's tile.
template <class Input, class Accumulator, int kTilesM, int kPairsN>
__device__ __forceinline__ void multiply(Accumulator (&accumulators)[kTilesM][kPairsN * 2],
                                         const u32 (&a)[kTilesM][4], const u32 (&b)[kPairsN][4]) {
#pragma unroll
  for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
    for (int j = 0; j < kPairsN * 2; ++j) {
      const u32 b0 = b[j / 2][j % 2 * 2], b1 = b[j / 2][j % 2 * 2 + 1];
      if constexpr (is_same<Input, float>) {
        mma_1688_tf32(accumulators[i][j], a[i], b0, b1);
      } else if constexpr (is_same<Accumulator, u32[2]>) {
        mma_16816_f16(accumulators[i][j], a[i], b0, b1);
      } else {
        mma_16816<Input>(accumulators[i][j], a[i], b0, b1);
      }
    }
  }
}

// Shared memory, kStages times (A tile, B tile); the ring position of K-tile i is i % kStages:
//
//   | A 0 | B 0 | A 1 | B 1 | ... | A kStages-1 | B kStages-1 |
//
//   K major:  kBlockM (kBlockN) rows of kBlockK elements, read by ldmatrix
//   MN major: kBlockK rows of kBlockM (kBlockN) elements, read by ldmatrix.trans, tf32 by words
//
// Two sets of B's fragments alternate: while step s is multiplied, step s + 1 of B is read, across
// the border of K-tiles as well. (With two sets of A's, too, a 64 x 64 warp tile is as fast, but
// takes all 255 registers and twice as long to compile.) Loads past the last K-tile fill with zeros
// instead of being skipped: the loop stays free of branches, and no stage is read before it was
// written.
template <class Config, class Epilogue>
__device__ __forceinline__ void gemm(const GemmParams& params) {
  using Shape = GemmShape<Config>;
  using Input = typename Config::Input;
  constexpr int kSteps = Shape::kSteps, kStages = Config::kStages;
  constexpr bool kAsync = Shape::LoaderA::kAsync;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int warp_row = warp / Config::kWarpsN * Shape::kWarpM;
  const int warp_column = warp % Config::kWarpsN * Shape::kWarpN;
  const TilePosition at = tile_position<Config::kBlockM, Config::kBlockN>(params, blockIdx.x);

  typename Shape::LoaderA loader_a(static_cast<const Input*>(params.a) + at.batch * params.a_batch,
                                   params.a_ld, at.row, params.m, params.k, thread);
  typename Shape::LoaderB loader_b(static_cast<const Input*>(params.b) + at.batch * params.b_batch,
                                   params.b_ld, at.column, params.n, params.k, thread);
  const auto load_stage = [&](u32 stage) {
    loader_a.load_next(stage);
    loader_b.load_next(stage + Shape::TileA::kBytes);
    commit_copies<kAsync>();
  };
  const auto next_stage = [](u32 stage) {
    return stage == Shape::kSharedBytes - Shape::kStageBytes ? 0 : stage + Shape::kStageBytes;
  };

  const typename Shape::FragmentsA fragments_a(warp_row, lane);
  const typename Shape::FragmentsB fragments_b(warp_column, lane);
  u32 a[Shape::FragmentsA::kCount][4], b[2][Shape::FragmentsB::kCount][4];

#pragma unroll 1
  for (u32 stage = 0; stage < (kStages - 1) * Shape::kStageBytes; stage += Shape::kStageBytes) {
    load_stage(stage);
  }
  const auto wait_for_stage = [&] {
    wait_copies<kAsync, kStages - 2>();
    __syncthreads();
  };
  wait_for_stage();
  fragments_b.load(b[0], Shape::TileA::kBytes, 0);

  typename Shape::Accumulator accumulators[Shape::kWarpM / 16][Shape::kWarpN / 8] = {};
  u32 read = 0, write = (kStages - 1) * Shape::kStageBytes;
#pragma unroll 1
  for (int k = 0; k < params.k; k += Config::kBlockK) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      fragments_a.load(a, read, step);
      if (step == kSteps - 1) {
        wait_for_stage();
        read = next_stage(read);
      }
      fragments_b.load(b[(step + 1) % 2], read + Shape::TileA::kBytes, (step + 1) % kSteps);
      if (step == 0) {
        // Every warp has read the last fragments of this stage: it did before it last waited.
        load_stage(write);
        write = next_stage(write);
      }
      multiply<Input>(accumulators, a, b[step % 2]);
    }
  }
  wait_copies<kAsync, 0>();
  __syncthreads();
  store_tile<Config, Epilogue>(params, accumulators, at.batch, at.row + warp_row,
                               at.column + warp_column, warp, lane);
}

}  // namespace kiln
