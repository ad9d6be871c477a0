// Groups of rows: each group of rows of a is multiplied by a matrix of its own, b[group]. Where the
// groups lie is in device memory, and the host knows bounds of their sizes alone.
#pragma once
#include "/kiln/base/lanes.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/raster.cuh"

namespace kiln {

// offsets: the groups' rows follow each other in a, and offsets[g] is where those of group g end.
// counts: a[g] has room for m rows, of which the first counts[g] are the group's.
enum class Grouping { none, offsets, counts };

template <class Config>
inline constexpr bool kGrouped = Config::kGrouping != Grouping::none;

// Rows of a and of the output, from `begin` to before `end`.
struct GroupRows {
  int begin, end;
};

// Returns those of group `group`; none of one that does not exist. Numbers that lie outside of a's
// rows are clamped, so that no content of the array makes a kernel access other memory.
template <Grouping kGrouping>
__device__ __forceinline__ GroupRows rows_of_group(const GemmParams& params, int group) {
  if (group >= params.batch) return {0, 0};
  const auto clamped = [&](int row, int least) {
    return row < least ? least : row > params.m ? params.m : row;
  };
  if constexpr (kGrouping == Grouping::counts) return {0, clamped(params.group_rows[group], 0)};
  const int begin = group == 0 ? 0 : clamped(params.group_rows[group - 1], 0);
  return {begin, clamped(params.group_rows[group], begin)};
}

// Numbers the tiles of all groups, group by group, and finds one by its number. All 32 lanes of a
// warp call together: each looks at one group, so that 256 groups take eight steps. Lanes keep what
// they have read of their groups, as the next tile is mostly among the same.
template <Grouping kGrouping, int kTileRows>
class GroupSearch {
 public:
  // The group of a tile, its rows, and the tile's number among those of its group.
  struct Found {
    int group;
    GroupRows rows;
    int tile;
  };

  // Finds tile `index`, and returns false if there are not so many. `tiles_across` tiles have the
  // same rows. The index must not be less than that of the call before.
  __device__ __forceinline__ bool find(const GemmParams& params, int tiles_across, int index,
                                       Found& found) {
#pragma unroll 1
    for (;;) {
      const u32 beyond = __ballot_sync(~0u, index < through_);
      if (beyond != 0) {
        const int owner = __ffs(static_cast<int>(beyond)) - 1;
        found.group = first_group_ + owner;
        found.rows.begin = __shfl_sync(~0u, rows_.begin, owner);
        found.rows.end = __shfl_sync(~0u, rows_.end, owner);
        const int tiles = ceil_div(found.rows.end - found.rows.begin, kTileRows) * tiles_across;
        found.tile = index - __shfl_sync(~0u, through_, owner) + tiles;
        return true;
      }
      first_group_ += 32;
      if (first_group_ >= params.batch) return false;
      load(params, tiles_across);
    }
  }

 private:
  // Loads the next groups.
  __device__ __forceinline__ void load(const GemmParams& params, int tiles_across) {
    const int lane = threadIdx.x % 32;
    const int before = __shfl_sync(~0u, through_, 31);
    rows_ = rows_of_group<kGrouping>(params, first_group_ + lane);
    through_ = sum_up_to_lane(ceil_div(rows_.end - rows_.begin, kTileRows) * tiles_across);
    through_ += before;
  }

  int first_group_ = -32;    // of those that the lanes look at; they begin ahead of the first
  GroupRows rows_ = {0, 0};  // of this lane's group
  int through_ = 0;          // tiles of all groups up to this lane's
};

// Finds tile `index` of kTileRows rows and kTileColumns columns each; called by whole warps.
template <Grouping kGrouping, int kTileRows, int kTileColumns>
__device__ __forceinline__ bool find_group_tile(const GemmParams& params, int index,
                                                TilePosition& at) {
  GroupSearch<kGrouping, kTileRows> search;
  typename GroupSearch<kGrouping, kTileRows>::Found found;
  if (!search.find(params, ceil_div(params.n, kTileColumns), index, found)) return false;
  at = tile_position<kTileRows, kTileColumns>(found.rows.end - found.rows.begin, params.n,
                                              found.tile);
  at.batch = found.group, at.row += found.rows.begin, at.row_end = found.rows.end;
  return true;
}

// Returns where rows end that a tile may write: where its group does.
template <Grouping kGrouping>
__device__ __forceinline__ int row_end_of(const GemmParams& params, const TilePosition& at) {
  return kGrouping == Grouping::none ? params.m : at.row_end;
}

}  // namespace kiln
