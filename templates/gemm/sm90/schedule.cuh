// Selects the tiles that a cluster of a persistent kernel computes. All roles of all its CTAs step
// through the same tiles, each with its own schedule.
#pragma once
#include "/kiln/gemm/gate.cuh"
#include "/kiln/gemm/groups.cuh"
#include "/kiln/gemm/raster.cuh"
#include "/kiln/gemm/scales.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// A CTA's place in its cluster. Of each kCluster CTAs in turn, every one has a tile of its own and
// they share the columns; in a kernel with splits, these parts of the cluster divide K.
template <class Config>
struct ClusterPlace {
  u32 tile;             // of the cluster's tiles, which of them
  u32 part, parts;      // of K
  u32 index, clusters;  // of the cluster in the grid

  __device__ __forceinline__ static ClusterPlace here(const GemmParams& params) {
    if constexpr (Config::kApart) {
      static_assert(Config::kCluster == 1,
                    "gemm sm_90a: parts of K that meet in a workspace are of no cluster");
      // Neighbours have the same part of tiles that share operands, which they then read together.
      const GemmRaster& raster = params.raster;
      const u32 tiles = raster.tiles.value;
      const u32 part = divide(static_cast<int>(blockIdx.x), raster.tiles);
      return {0, part, static_cast<u32>(raster.parts), blockIdx.x - part * tiles, tiles};
    } else if constexpr (Config::kSplits) {
      const u32 rank = cluster_rank();
      return {rank % Config::kCluster, rank / Config::kCluster, cluster_size() / Config::kCluster,
              cluster_index(), cluster_count()};
    } else if constexpr (Config::kCluster > 1) {
      return {cluster_rank(), 0, 1, cluster_index(), cluster_count()};
    }
    return {0, 0, 1, blockIdx.x, gridDim.x};
  }
  // The rank of the CTA that has part `part` of a tile of the cluster.
  __device__ __forceinline__ static u32 rank_of(u32 part, u32 tile) {
    return part * Config::kCluster + tile;
  }
};

// The range of K-tiles of a tile that this CTA multiplies.
struct KTiles {
  int begin, end;
};
template <class Config>
__device__ __forceinline__ KTiles k_tiles_of(const ClusterPlace<Config>& place,
                                             const GemmParams& params, int block_k) {
  if constexpr (!Config::kSplits) return {0, ceil_div(params.k, block_k)};
  const int part = static_cast<int>(place.part), longer = params.raster.longer_parts;
  const int begin = part * params.raster.part_k_tiles + (part < longer ? part : longer);
  return {begin, begin + params.raster.part_k_tiles + (part < longer ? 1 : 0)};
}

// Clusters that run at the same time compute tiles within kRasterRows rows of tiles, or fewer than
// twice as many in the last group of rows, so that they share operands in L2.
template <class Config>
class MatrixSchedule {
 public:
  __device__ __forceinline__ MatrixSchedule(const GemmParams& params,
                                            const ClusterPlace<Config>& place)
      : raster_(params.raster),
        tiles_(raster_.per_batch.value * params.batch),
        index_(static_cast<int>(place.index)),
        clusters_(static_cast<int>(place.clusters)),
        first_row_(static_cast<int>(place.tile) * (kRows / Config::kCluster)) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < tiles_; }
  __device__ __forceinline__ bool is_last() const { return index_ + clusters_ >= tiles_; }
  // Returns the CTA's part of the cluster's tile; its rows may all lie outside the matrix.
  __device__ __forceinline__ TilePosition tile() const {
    TilePosition at = tile_position<kRows, kColumns, Config::kRasterRows>(raster_, index_);
    at.row += first_row_;
    return at;
  }
  __device__ __forceinline__ void advance() { index_ += clusters_; }

 private:
  // kRows and kColumns count the output's rows and columns, or the transposed output's.
  static constexpr int kRowFactor = Config::kSwapped ? kGateFactor<Config> : 1;
  static constexpr int kRows = Config::kBlockM * Config::kCluster / kRowFactor;
  static constexpr int kColumns = Config::kBlockN / (kGateFactor<Config> / kRowFactor);

  const GemmRaster& raster_;
  int tiles_, index_, clusters_, first_row_;
};

// The same of rows in groups, group by group. Whole warps step through the tiles, as they search
// for them together. Tiles of a group are numbered as those of a matrix of its own.
template <class Config>
class GroupedSchedule {
 public:
  __device__ __forceinline__ GroupedSchedule(const GemmParams& params, const ClusterPlace<Config>&)
      : params_(params), index_(blockIdx.x) {
    static_assert(Config::kCluster == 1 && !Config::kSplits,
                  "gemm sm_90a: rows in groups need a tile for each CTA");
  }

  __device__ __forceinline__ bool has_tile() {
    return search_.find(params_, ceil_div(params_.n, kTileColumns), index_, found_);
  }
  __device__ __forceinline__ TilePosition tile() const {
    const int count = found_.rows.end - found_.rows.begin;
    constexpr int kRows = kSwapped ? kTileColumns : kTileRows;
    constexpr int kColumns = kSwapped ? kTileRows : kTileColumns;
    TilePosition at;
    if constexpr (kByDivisors) {
      at = tile_position_in_group<kRows, kColumns, Config::kRasterRows>(
          params_.raster, ceil_div(count, kRows), found_.tile);
    } else {
      at = tile_position<kRows, kColumns, Config::kRasterRows>(
          kSwapped ? params_.n : count, kSwapped ? count : params_.n, found_.tile);
    }
    (kSwapped ? at.column : at.row) += found_.rows.begin;
    at.batch = found_.group, at.row_end = found_.rows.end;
    return at;
  }
  __device__ __forceinline__ void advance() { index_ += gridDim.x; }

 private:
  static constexpr bool kSwapped = Config::kSwapped;
  // Of the output, whether it is transposed or not.
  static constexpr int kTileRows = kSwapped ? Config::kBlockN : Config::kBlockM;
  static constexpr int kTileColumns =
      (kSwapped ? Config::kBlockM : Config::kBlockN) / kGateFactor<Config>;
  // The host knows how many tiles are across, but not how many are down. Divisions took 3 % of the
  // time of tiles of 192 columns, whose next products wait for them. Those of 256 columns with
  // scales of blocks are 2 % slower without, for which nobody knows a reason.
  static constexpr bool kByDivisors =
      !kSwapped && !(kBlockScaled<Config> && Config::kBlockN == 256);
  using Search = GroupSearch<Config::kGrouping, kTileRows>;

  const GemmParams& params_;
  int index_;
  Search search_;
  typename Search::Found found_;
};

template <class Config>
using TileSchedule = conditional<kGrouped<Config>, GroupedSchedule<Config>, MatrixSchedule<Config>>;

}  // namespace kiln
