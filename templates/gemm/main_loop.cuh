// Multiplies the K-tiles of one output tile: copies them into a ring of stages, reads fragments
// from there and accumulates their products.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/base/mma.cuh"
#include "/kiln/gemm/fragments.cuh"
#include "/kiln/gemm/gate.cuh"
#include "/kiln/gemm/load.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/raster.cuh"

namespace kiln {

// A warp multiplies one step of K of its tile in slots: each slot multiplies one fragment of B, 16
// columns, by all fragments of A. Every other slot goes through A backwards, so the fragment at
// which two slots meet is read from the register file one time fewer.
template <class Input, int kTilesM, int kTilesN, class Accumulator>
__device__ __forceinline__ void multiply_slot(Accumulator (&accumulators)[kTilesM][kTilesN],
                                              const u32 (&a)[kTilesM][4], const u32 (&b)[4],
                                              int slot) {
#pragma unroll
  for (int n = 0; n < kTilesM * 2; ++n) {
    const int i = slot % 2 ? kTilesM - 1 - n / 2 : n / 2, half = n % 2, j = slot * 2 + half;
    if constexpr (is_same<Input, float>) {
      mma_1688_tf32(accumulators[i][j], a[i], b[half * 2], b[half * 2 + 1]);
    } else if constexpr (is_same<Accumulator, u32[2]>) {
      mma_16816_f16(accumulators[i][j], a[i], b[half * 2], b[half * 2 + 1]);
    } else {
      mma_16816<Input>(accumulators[i][j], a[i], b[half * 2], b[half * 2 + 1]);
    }
  }
}

// Shared memory holds kStages pairs of an A tile and a B tile; K-tile i is in stage i % kStages:
//
//   | A 0 | B 0 | A 1 | B 1 | ... | A kStages-1 | B kStages-1 |
//
//   K major:  kBlockM (kBlockN) rows of kBlockK elements, read by ldmatrix
//   MN major: kBlockK rows of kBlockM (kBlockN) elements, read by ldmatrix.trans (tf32 by words)
//
// While one step is multiplied, all fragments of the next one, which may be in the next K-tile, are
// read into a second set of registers. They are read in one burst: when the reads were spread among
// the products, a wait for one also waited for later ones (a warp has six counters for everything
// that it waits for), and 256 x 128 lost 8 %. Spreading the copies to shared memory over the slots
// of all steps but the last gains 1 to 2 % over one burst, because they share its bandwidth with
// the reads. Loads past the last K-tile write zeros instead of being skipped: the loop needs no
// branches, and no stage is read before it is written.
template <class Config, class Shape>
__device__ __forceinline__ void main_loop(
    const GemmParams& params, const TilePosition& at, const TileShare& share, int warp_row,
    int warp_column,
    typename Shape::Accumulator (&accumulators)[Shape::kWarpM / 16][Shape::kWarpN / 8]) {
  using Input = typename Config::Input;
  using FragmentsA = typename Shape::FragmentsA;
  using FragmentsB = typename Shape::FragmentsB;
  constexpr int kSteps = Shape::kSteps, kStages = Config::kStages;
  constexpr int kSlots = FragmentsB::kCount;
  constexpr bool kAsync = Shape::LoaderA::kAsync;
  constexpr int kParts = Config::kAlignedLoads ? (kSteps - 1) * kSlots : 1;
  const int thread = threadIdx.x;

  typename Shape::LoaderA loader_a(static_cast<const Input*>(params.a) + at.batch * params.a_batch,
                                   params.a_ld, at.row, params.m, share.k_begin, share.k_end,
                                   thread);
  typename Shape::LoaderB loader_b(static_cast<const Input*>(params.b) + at.batch * params.b_batch,
                                   params.b_ld, at.column * kGateFactor<Config>,
                                   params.n * kGateFactor<Config>, share.k_begin, share.k_end,
                                   thread);
  const auto copy_part = [&](u32 stage, int part, int parts) {
    loader_a.load_part(stage, part, parts);
    loader_b.load_part(stage + Shape::TileA::kBytes, part, parts);
    if (part == parts - 1) commit_copies<kAsync>();
  };
  const auto next_stage = [](u32 stage) {
    return stage == Shape::kSharedBytes - Shape::kStageBytes ? 0 : stage + Shape::kStageBytes;
  };
  const auto wait_for_stage = [&] {
    wait_copies<kAsync, kStages - 2>();
    __syncthreads();
  };

#pragma unroll 1
  for (u32 stage = 0; stage < (kStages - 1) * Shape::kStageBytes; stage += Shape::kStageBytes) {
    copy_part(stage, 0, 1);
  }
  wait_for_stage();

  const FragmentsA fragments_a(warp_row, thread % 32);
  const FragmentsB fragments_b(warp_column, thread % 32);
  u32 a[2][FragmentsA::kCount][4], b[2][kSlots][4];  // for this step and the next
  const auto load_fragments = [&](u32 stage, int step) {
    fragments_a.load(a[step % 2], stage, step);
    fragments_b.load(b[step % 2], stage + Shape::TileA::kBytes, step);
  };
  load_fragments(0, 0);

  u32 read = 0;
#pragma unroll 1
  for (int left = ceil_div(share.k_end - share.k_begin, Config::kBlockK); left > 0; --left) {
    // The previous stage is free: every warp read its last fragments before the last wait.
    const u32 write = (read == 0 ? Shape::kSharedBytes : read) - Shape::kStageBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        wait_for_stage();
        read = next_stage(read);
      }
      load_fragments(read, (step + 1) % kSteps);
      FragmentsA::round(a[step % 2]);
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        const int part = step * kSlots + slot;
        if (part < kParts) copy_part(write, part, kParts);
        FragmentsB::round(b[step % 2], slot);
        multiply_slot<Input>(accumulators, a[step % 2], b[step % 2][slot], slot);
      }
    }
  }
  wait_copies<kAsync, 0>();
  __syncthreads();
}

}  // namespace kiln
