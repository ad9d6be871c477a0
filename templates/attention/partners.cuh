// Partners are warps that hold the same query rows. Each has its share of the scores of a tile and
// of the output columns. With 32 rows but half of a head dim of 256, the accumulators of O fit in
// registers, and K and V are read from shared memory half as often as with 16 rows. Of a head dim
// of 512, not even the accumulators of 16 rows would fit.
#pragma once
#include "/kiln/base/barriers.cuh"
#include "/kiln/base/frag.cuh"
#include "/kiln/base/types.cuh"

namespace kiln {

// The place of a warp in its team; kPartners neighbouring warps share rows.
template <class Tiles>
struct WarpPlace {
  int team, thread;  // `thread` is the index in the team
  int row;           // first query row in the tile
  int partner;       // which share of keys and columns it has

  __device__ __forceinline__ WarpPlace()
      : team(threadIdx.x / Tiles::kTeamThreads),
        thread(threadIdx.x % Tiles::kTeamThreads),
        row(thread / 32 / Tiles::kPartners * Tiles::kWarpRows),
        partner(thread / 32 % Tiles::kPartners) {}
  __device__ __forceinline__ int key() const { return partner * Tiles::kWarpKeys; }
  __device__ __forceinline__ int column() const { return partner * Tiles::kWarpColumns; }
};

// The exchange between partners through `scratch` in shared memory, one float per row and partner.
template <class Tiles>
struct Partners {
  const WarpPlace<Tiles>& place;
  float* scratch;

  __device__ __forceinline__ void sync() const {
    if constexpr (Tiles::kPartners > 1) {
      sync_threads<Tiles::kPartners * 32>(1 + place.thread / 32 / Tiles::kPartners);
    }
  }
  // Replaces values[r], equal in all lanes of a row, by join() over the partners in their order.
  template <class Map, int kRows, class Join>
  __device__ __forceinline__ void join(float (&values)[kRows], Join join) const {
    if constexpr (Tiles::kPartners > 1) {
      float* const rows = scratch + place.row;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (Map::leads_row()) rows[place.partner * Tiles::kRows + Map::row(r)] = values[r];
      }
      sync();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        values[r] = rows[Map::row(r)];
#pragma unroll
        for (int i = 1; i < Tiles::kPartners; ++i) {
          values[r] = join(values[r], rows[i * Tiles::kRows + Map::row(r)]);
        }
      }
    }
  }
};

}  // namespace kiln
