// Sums a tile whose K is divided among the CTAs of a cluster, using distributed shared memory.
#pragma once
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

// Every CTA writes its part to its own shared memory, over the stages. The CTAs then divide the
// slabs of the output among themselves, and each adds up all parts of its slabs in rank order, so
// the sum does not depend on timing. A part is [64 rows][8 columns][thread], four accumulators per
// thread, so that a warp reads and writes whole lines.
template <class Config>
class ClusterSum {
  using Shape = Sm90Shape<Config>;
  static constexpr int kTilesN = Config::kBlockN / 8;
  static constexpr u32 kTileBytes = 128 * 16;

 public:
  __device__ __forceinline__ ClusterSum(const ClusterPlace<Config>& place, int group)
      : place_(place),
        first_(Shape::base() + group * Shape::kTilesM * kTilesN * kTileBytes +
               threadIdx.x % 128 * 16) {}

  // Writes the accumulators of the group's `tile_m`-th 64 rows.
  __device__ __forceinline__ void write(const float (&acc)[Shape::kRegisters], int tile_m) const {
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      store_shared_16(at(tile_m, j),
                      {__float_as_uint(acc[j * 4]), __float_as_uint(acc[j * 4 + 1]),
                       __float_as_uint(acc[j * 4 + 2]), __float_as_uint(acc[j * 4 + 3])});
    }
  }

  // Sums kCount tiles of 8 columns from `first_tile` on; to be called between two sync_cluster().
  template <int kCount>
  __device__ __forceinline__ void read(float (&sums)[kCount * 4], int tile_m,
                                       int first_tile) const {
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
#pragma unroll 2
    for (u32 part = 0; part < place_.parts; ++part) {
      float4 quads[kCount];
      // Reading a CTA's own memory through the cluster's network is several times slower.
      if (part == place_.part) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) quads[j] = load_shared_16(at(tile_m, first_tile + j));
      } else {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          quads[j] = load_shared_of(place_.rank_of(part, place_.tile), at(tile_m, first_tile + j));
        }
      }
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        sums[j * 4] += quads[j].x, sums[j * 4 + 1] += quads[j].y;
        sums[j * 4 + 2] += quads[j].z, sums[j * 4 + 3] += quads[j].w;
      }
    }
  }

 private:
  __device__ __forceinline__ u32 at(int tile_m, int tile_n) const {
    return first_ + (tile_m * kTilesN + tile_n) * kTileBytes;
  }

  const ClusterPlace<Config>& place_;
  u32 first_;
};

}  // namespace kiln
