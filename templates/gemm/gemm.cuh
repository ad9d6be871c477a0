// The portable GEMM (sm_80 and later): cp.async into a ring of shared-memory stages, ldmatrix and
// mma.sync. A rendered kernel calls gemm<Config, Epilogue>(params); the host renders both types.
#pragma once
#include "/kiln/base/launches.cuh"
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/fragments.cuh"
#include "/kiln/gemm/gate.cuh"
#include "/kiln/gemm/groups.cuh"
#include "/kiln/gemm/load.cuh"
#include "/kiln/gemm/main_loop.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/raster.cuh"
#include "/kiln/gemm/split.cuh"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

template <class T>
inline constexpr bool is_gemm_element = is_same<T, f16> || is_same<T, bf16> || is_same<T, float>;

// Derives constants and types from a Config and checks its limits.
template <class Config>
struct GemmShape {
  using Input = typename Config::Input;
  static constexpr bool kHalfAccumulator = is_same<typename Config::Accumulator, f16>;
  static constexpr int kWarpM = Config::kBlockM / Config::kWarpsM;
  static constexpr int kWarpN = Config::kBlockN / Config::kWarpsN;
  static constexpr int kOutputN = Config::kBlockN / kGateFactor<Config>;  // columns of a tile
  static constexpr int kThreads = Config::kWarpsM * Config::kWarpsN * 32;
  static constexpr int kSteps = Config::kBlockK * static_cast<int>(sizeof(Input)) / 32;

  static_assert(is_gemm_element<Input>, "gemm: Input must be f16, bf16 or float (tf32)");
  static_assert(is_gemm_element<typename Config::Output> || is_quantized<typename Config::Output>,
                "gemm: Output must be f16, bf16, float, an 8-bit float or i8");
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
  using LoaderB = TileLoader<TileB, kThreads, Config::kAlignedLoads, Config::kGate == Gate::halves>;
  using FragmentsA = FragmentLoader<TileA, true, kWarpM>;
  using FragmentsB = FragmentLoader<TileB, false, kWarpN>;
  using Accumulator = conditional<kHalfAccumulator, u32[2], float[4]>;  // of 16 x 8 outputs
};

// Finds the tile of a CTA. Returns false if it has none: the grid is as large as tiles of rows in
// groups may be many.
template <class Config>
__device__ __forceinline__ bool find_tile(const GemmParams& params, int index, TilePosition& at) {
  constexpr int kColumns = GemmShape<Config>::kOutputN;
  if constexpr (!kGrouped<Config>) {
    at = tile_position<Config::kBlockM, kColumns>(params.m, params.n, index);
    return true;
  } else {
    return find_group_tile<Config::kGrouping, Config::kBlockM, kColumns>(params, index, at);
  }
}

template <class Config, class Epilogue>
__device__ __forceinline__ void gemm(const GemmParams& params) {
  using Shape = GemmShape<Config>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / Config::kWarpsN * Shape::kWarpM;
  const int warp_column = warp % Config::kWarpsN * Shape::kWarpN;
  const TileShare share = tile_share<Config::kBlockK>(params, blockIdx.x);
  // Earlier launches may decide where the groups lie.
  if constexpr (kGrouped<Config>) wait_for_launches<Config::kOverlaps>();
  TilePosition start;
  if (!find_tile<Config>(params, share.tile, start)) return;
  // These two stay in shared memory because the main loop leaves no registers for them.
  __shared__ TilePosition position;
  __shared__ TileShare kept;
  if (threadIdx.x == 0) {
    position = start;
    kept = share;
  }
  // weights_ahead is not made use of: a and b are copied in the same groups.
  if constexpr (!kGrouped<Config>) wait_for_launches<Config::kOverlaps>();
  let_dependents_begin<Config::kOverlaps>();

  typename Shape::Accumulator accumulators[Shape::kWarpM / 16][Shape::kWarpN / 8] = {};
  main_loop<Config, Shape>(params, start, share, warp_row, warp_column, accumulators);
  if constexpr (!kGrouped<Config>) {
    if (kept.parts > 1 && !sum_parts<Shape::kThreads>(params, kept, accumulators)) return;
  }
  const TilePosition at = position;
  store_tile<Config, Epilogue>(params, accumulators, at.batch, at.row + warp_row,
                               row_end_of<Config::kGrouping>(params, at),
                               at.column + warp_column / kGateFactor<Config>, warp, lane);
}

}  // namespace kiln
