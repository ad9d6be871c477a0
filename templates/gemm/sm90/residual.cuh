// Loads the residual through the ring: the K-tiles of an output tile are followed by stages with
// the tile's residual, which is thus in shared memory when the products are done.
#pragma once
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/sm90/main_loop.cuh"
#include "/kiln/gemm/sm90/slab.cuh"

namespace kiln {

// The residual is in slabs like the output's, of kBlockM rows each; a stage holds as many as fit.
template <class Config>
struct ResidualTile {
  using Shape = Sm90Shape<Config>;
  using Residual = typename Config::Residual;
  using Slab = UprightSlab<Residual, Config::kResidualBoxes ? Shape::kOutputN : 64, false>;
  static constexpr u32 kSlabBytes = Config::kBlockM * Slab::kRowBytes;
  static constexpr int kFit = static_cast<int>(Shape::kStageBytes / kSlabBytes);  // in a stage
  static constexpr int kStages = Config::kResidualBoxes ? ceil_div(Slab::kSlabs, kFit) : 0;
  static_assert(!Config::kResidualBoxes || kStages < Config::kStages,
                "gemm sm_90a: the ring must hold a tile of the residual and a K-tile");

  // Called by the producer; fills the stages from `position` on.
  __device__ __forceinline__ static void load(const TensorMap& map,
                                              typename Shape::StageRing::Position& position,
                                              int row, int column, int batch) {
    const auto ring = Shape::ring();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      const int first = stage * kFit;
      const int count = Slab::kSlabs - first < kFit ? Slab::kSlabs - first : kFit;
      const u32 full = ring.full(position.stage);
      wait(ring.empty(position.stage), position.parity);
      arrive_expecting(full, count * kSlabBytes);
#pragma unroll
      for (int slab = 0; slab < count; ++slab) {
        load_box(Shape::rows(position.stage) + slab * kSlabBytes, map, full,
                 column + (first + slab) * Slab::kColumns, row, batch);
      }
      position.advance();
    }
  }

  u32 stages_[kStages > 0 ? kStages : 1];  // addresses

  // Called by a math group; waits for the stages from `position` on.
  __device__ __forceinline__ void wait_for(typename Shape::StageRing::Position& position) {
    const auto ring = Shape::ring();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      wait(ring.full(position.stage), position.parity);
      stages_[stage] = Shape::rows(position.stage);
      position.advance();
    }
  }
  // `position` must be just past these stages and each warp done with its own rows. The copy engine
  // writes the stages next; only the fence orders that after the warp's reads.
  __device__ __forceinline__ void release(typename Shape::StageRing::Position position) const {
    position.retreat_by(kStages);
    fence_async_proxy();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      release_stage<Config>(Shape::ring().empty(position.stage));
      position.advance();
    }
  }

  // Returns two neighbours in a row; `row` counts from the tile's first row.
  __device__ __forceinline__ Pair read(int slab, int row, int column) const {
    constexpr int kChunk = 16 / static_cast<int>(sizeof(Residual));
    const u32 source = stages_[slab / kFit] + slab % kFit * kSlabBytes +
                       Slab::Rows::offset(row, column / kChunk) +
                       column % kChunk * sizeof(Residual);
    if constexpr (sizeof(Residual) == 4) {
      return {load_shared<float>(source), load_shared<float>(source + 4)};
    } else {
      const u32 word = load_word(source);
      return {to_float(Residual{static_cast<u16>(word)}),
              to_float(Residual{static_cast<u16>(word >> 16)})};
    }
  }
};

}  // namespace kiln
