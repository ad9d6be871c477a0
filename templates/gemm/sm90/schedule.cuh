// Which tiles a cluster of a persistent kernel computes. All roles of all its CTAs walk through the
// same ones, each with a schedule of its own.
#pragma once
#include "/kiln/gemm/raster.cuh"

namespace kiln {

// Tiles that clusters compute at the same time lie in kGroup rows of tiles, so that they share
// operands in L2.
template <class Config>
class TileSchedule {
 public:
  // `cta_rank`: in the cluster.
  __device__ __forceinline__ TileSchedule(const GemmParams& params, u32 cta_rank)
      : rows_(Config::kSwapped ? params.n : params.m),
        columns_(Config::kSwapped ? params.m : params.n),
        tiles_(ceil_div(rows_, kRows) * ceil_div(columns_, Config::kBlockN) * params.batch),
        index_(blockIdx.x / Config::kCluster),
        first_row_(static_cast<int>(cta_rank) * Config::kBlockM) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < tiles_; }
  // The CTA's own part of the cluster's tile; its rows may all lie outside the matrix.
  __device__ __forceinline__ TilePosition tile() const {
    TilePosition at =
        tile_position<kRows, Config::kBlockN, Config::kRasterRows>(rows_, columns_, index_);
    at.row += first_row_;
    return at;
  }
  __device__ __forceinline__ void advance() {
    index_ += static_cast<int>(gridDim.x) / Config::kCluster;
  }

 private:
  static constexpr int kRows = Config::kBlockM * Config::kCluster;

  int rows_, columns_, tiles_, index_, first_row_;
};

}  // namespace kiln
