// Selects the tiles that a cluster of a persistent kernel computes. All roles of all its CTAs step
// through the same tiles, each with its own schedule.
#pragma once
#include "/kiln/gemm/gate.cuh"
#include "/kiln/gemm/raster.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// A CTA's place in its cluster. The CTAs of a cluster share the columns of their tiles or, in a
// kernel with splits, divide the K of one tile.
template <class Config>
struct ClusterPlace {
  u32 rank, size;

  __device__ __forceinline__ static ClusterPlace here() {
    if constexpr (Config::kSplits) return {cluster_rank(), cluster_size()};
    if constexpr (Config::kCluster > 1) return {cluster_rank(), Config::kCluster};
    return {0, 1};
  }
};

// The range of K-tiles of a tile that this CTA multiplies.
struct KTiles {
  int begin, end;
};
template <class Config>
__device__ __forceinline__ KTiles k_tiles_of(const ClusterPlace<Config>& place, int k,
                                             int block_k) {
  const int all = ceil_div(k, block_k);
  if constexpr (!Config::kSplits) return {0, all};
  const int rank = static_cast<int>(place.rank), size = static_cast<int>(place.size);
  return {static_cast<int>(static_cast<i64>(all) * rank / size),
          static_cast<int>(static_cast<i64>(all) * (rank + 1) / size)};
}

// Clusters that run at the same time compute tiles within kRasterRows rows of tiles, so that they
// share operands in L2.
template <class Config>
class TileSchedule {
 public:
  __device__ __forceinline__ TileSchedule(const GemmParams& params,
                                          const ClusterPlace<Config>& place)
      : rows_(Config::kSwapped ? params.n : params.m),
        columns_(Config::kSwapped ? params.m : params.n),
        tiles_(ceil_div(rows_, kRows) * ceil_div(columns_, kColumns) * params.batch),
        index_(blockIdx.x / place.size),
        clusters_(gridDim.x / place.size),
        first_row_(Config::kSplits ? 0
                                   : static_cast<int>(place.rank) * (kRows / Config::kCluster)) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < tiles_; }
  // Returns the CTA's part of the cluster's tile; its rows may all lie outside the matrix.
  __device__ __forceinline__ TilePosition tile() const {
    TilePosition at = tile_position<kRows, kColumns, Config::kRasterRows>(rows_, columns_, index_);
    at.row += first_row_;
    return at;
  }
  __device__ __forceinline__ void advance() { index_ += clusters_; }

 private:
  // kRows and kColumns count the output's rows and columns, or the transposed output's.
  static constexpr int kRowFactor = Config::kSwapped ? kGateFactor<Config> : 1;
  static constexpr int kRows = Config::kBlockM * Config::kCluster / kRowFactor;
  static constexpr int kColumns = Config::kBlockN / (kGateFactor<Config> / kRowFactor);

  int rows_, columns_, tiles_, index_, clusters_, first_row_;
};

}  // namespace kiln
