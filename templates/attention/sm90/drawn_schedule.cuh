// Selects the query tiles that a CTA computes where nobody knows what tiles cost, because the mask
// reads tensors: QueryTiles' interface.
//
// Each CTA takes the next tile when it ends the one before. Heads come in groups whose keys fit L2,
// or at least so many that few CTAs share the keys of one, as in such a group the tiles of the last
// queries come first:
//
//   heads        0 .. 11           12 .. 23
//   tile         9 9 9 .. 8 8 ..   9 9 9 .. 8 8 ..
#pragma once
#include "/kiln/attention/sm90/query_tile.cuh"
#include "/kiln/base/draw.cuh"

namespace kiln {

template <class Config>
class DrawnTiles {
  static constexpr int kBlockQ = 64 * Config::kGroups;

 public:
  static constexpr bool kDraws = true;

  __device__ __forceinline__ explicit DrawnTiles(const AttentionParams& params) : p_(params) {}

  __device__ __forceinline__ bool has_tile() const {
    if (index_ < count()) return true;
    // Each CTA draws a number behind the last tile, and these are drawn last.
    if (draws() && index_ + 1 == count() + gridDim.x && threadIdx.x % 32 == 0) {
      end_draws(static_cast<u64*>(p_.workspace));
    }
    return false;
  }

  __device__ __forceinline__ TilePlace tile() const {
    const u32 together = heads_together();
    const u32 first = index_ / (together * tiles()) * together, in_group = index_ - first * tiles();
    const u32 here = min(together, heads() - first);
    const u32 head = first + in_group % here, tile = tiles() - 1 - in_group / here;
    const int h = static_cast<int>(head % p_.heads);
    return {static_cast<int>(head / p_.heads), h, h / (p_.heads / p_.heads_kv),
            static_cast<int>(tile) * kBlockQ, 0};
  }

  __device__ __forceinline__ void advance() {
    if (!draws()) {
      // In rounds, of which every other one is dealt in the other direction.
      index_ = (index_ / gridDim.x + 1) * 2 * gridDim.x - 1 - index_;
      return;
    }
    u32 drawn = 0;
    if (threadIdx.x % 32 == 0) {
      drawn = draw(static_cast<u64*>(p_.workspace), p_.nonce, index_ < gridDim.x);
    }
    index_ = gridDim.x + __shfl_sync(~0u, drawn, 0);
  }

 private:
  __device__ __forceinline__ bool draws() const { return p_.workspace != nullptr; }
  __device__ __forceinline__ u32 heads() const { return static_cast<u32>(p_.batch) * p_.heads; }
  __device__ __forceinline__ u32 tiles() const { return ceil_div(p_.len_q, kBlockQ); }
  __device__ __forceinline__ u32 count() const { return heads() * tiles(); }

  // A multiple of the query heads that share a KV head.
  __device__ __forceinline__ u32 heads_together() const {
    // Half of an H200's L2.
    constexpr u32 kBytes = 2 * (Config::kHeadDim + Config::kHeadDimV), kL2Bytes = 25u << 20;
    const u32 group = static_cast<u32>(p_.heads) / static_cast<u32>(p_.heads_kv);
    const u32 fitting = kL2Bytes / kBytes / static_cast<u32>(max(p_.len_kv, 1));
    return min(max(fitting, static_cast<u32>(ceil_div(gridDim.x, 4))) * group, heads());
  }

  const AttentionParams& p_;
  u32 index_ = blockIdx.x;
};

}  // namespace kiln
