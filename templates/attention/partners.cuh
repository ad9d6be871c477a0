// Warps that hold the same query rows: each has the scores of its share of a tile's keys and its
// share of the output's columns. With 32 rows, but half of a head dim of 256, the accumulators of O
// fit the registers, and K and V are read from shared memory half as often as with 16 rows.
#pragma once
#include "/kiln/base/frag.cuh"
#include "/kiln/base/types.cuh"

namespace kiln {

// Where a warp stands in its team: kPartners neighbouring warps share rows.
template <class Tiles>
struct WarpPlace {
  int team, thread;  // and the thread in its team
  int row;           // first query row, in the tile
  int partner;       // which share of keys and columns

  __device__ __forceinline__ WarpPlace()
      : team(threadIdx.x / Tiles::kTeamThreads),
        thread(threadIdx.x % Tiles::kTeamThreads),
        row(thread / 32 / Tiles::kPartners * Tiles::kWarpRows),
        partner(thread / 32 % Tiles::kPartners) {}
  __device__ __forceinline__ int key() const { return partner * Tiles::kWarpKeys; }
  __device__ __forceinline__ int column() const { return partner * Tiles::kWarpColumns; }
};

// What partners tell each other, through `scratch` in shared memory: a float for each row of each.
template <class Tiles>
struct Partners {
  const WarpPlace<Tiles>& place;
  float* scratch;

  __device__ __forceinline__ void sync() const {
    if constexpr (Tiles::kPartners > 1) {
      const int barrier = 1 + place.thread / 32 / Tiles::kPartners;
      asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(Tiles::kPartners * 32) : "memory");
    }
  }
  // values[r], the same in all lanes of a row, becomes join() over the partners, in their order.
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
