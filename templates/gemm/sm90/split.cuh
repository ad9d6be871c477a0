// Sums a tile whose K is divided among the CTAs of a cluster: they send each other their parts.
#pragma once
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tile.cuh"
#include "/kiln/sm90/send.cuh"

namespace kiln {

// The CTAs divide the slabs of the output among themselves: the tile's i-th belongs to part
// i % parts. Every CTA writes its sums of a slab to the memory of the owner, where a barrier counts
// the bytes, and the owner adds up all parts in the order of K, so the sum does not depend on
// timing. Nobody waits for others but for what they send.
//
// The memory is that of the stages that would be loaded next. The producer waits until they are
// empty and then lets the others write, mostly while the last K-tiles are still multiplied.
//
// A slab's part is [8 columns][thread], four accumulators per thread, so that a warp writes and
// reads whole lines. If there are pairs in halves, the columns of gates come first.
template <class Config, class Slab>
class ClusterSum {
  using Shape = Sm90Shape<Config>;
  static constexpr bool kHalves = Shape::kPairs == Pairs::halves;
  static constexpr int kGroupSlabs = Shape::kTilesM * Slab::kSlabs;
  static constexpr int kSlabQuads = Slab::kTiles * (kHalves ? 2 : 1);  // of a thread
  static constexpr u32 kQuadBytes = 128 * 16, kPartBytes = kSlabQuads * kQuadBytes;
  static constexpr u32 kMost = 8;  // CTAs of a cluster

 public:
  static constexpr int kSlabs = Config::kGroups * kGroupSlabs;  // of a tile

  __device__ __forceinline__ ClusterSum(const GemmParams& params, const ClusterPlace<Config>& place)
      : place_(place), raster_(params.raster) {}

  // Called by one thread, which then calls fence_barrier_init().
  __device__ __forceinline__ static void init(const ClusterPlace<Config>& place) {
    init_barrier(may_write(), place.parts);
#pragma unroll
    for (int group = 0; group < Config::kGroups; ++group) init_barrier(written(group), 1);
  }

  // Called by the producer behind its last copy, when all CTAs have called init().
  __device__ __forceinline__ void give_memory() const {
    const auto ring = Shape::ring();
    const u32 turns = ceil_div(static_cast<u32>(kSlabs), place_.parts);
    const u32 stages = ceil_div(turns * place_.parts * kPartBytes, Shape::kStageBytes);
    auto position = ring.producer_after(k_tiles_of_part(place_.part));
#pragma unroll 1
    for (u32 i = 0; i < stages; ++i, position.advance()) {
      wait(ring.empty(position.stage), position.parity);
    }
#pragma unroll 1
    for (u32 part = 0; part < place_.parts; ++part) {
      arrive_at(may_write(), place_.rank_of(part, place_.tile));
    }
  }

  // Called by one thread of the group.
  __device__ __forceinline__ void expect(int group) const {
    const auto owned = [&](u32 slabs) {  // of the tile's first ones
      return (slabs + place_.parts - 1 - place_.part) / place_.parts;
    };
    const u32 own = owned((group + 1) * kGroupSlabs) - owned(group * kGroupSlabs);
    arrive_expecting(written(group), own * (place_.parts - 1) * kPartBytes);
  }

  // Sends the group's sums to the owners of their slabs.
  __device__ __forceinline__ void send(const float (&sums)[Shape::kTilesM][Shape::kRegisters],
                                       int group) const {
    const u32 first = group * kGroupSlabs;
    u32 turn = first / place_.parts, owner = first % place_.parts;
    wait(may_write(), 0);
#pragma unroll
    for (int i = 0; i < kGroupSlabs; ++i) {
      const float* slab_sums = sums[i / Slab::kSlabs] + i % Slab::kSlabs * (Slab::kTiles * 4);
      const u32 cta = place_.rank_of(owner, place_.tile);
      const u32 there = shared_address_in(cta, Shape::base());
      const u32 barrier = there + (written(group) - Shape::base());
      const u32 part = memory_of(owner) + (turn * place_.parts + place_.part) * kPartBytes;
#pragma unroll
      for (int quad = 0; quad < kSlabQuads; ++quad) {
        const int half = quad / Slab::kTiles;
        const float* own = slab_sums + half * Shape::kPartner + quad % Slab::kTiles * 4;
        const u32 at = offset_of(part, quad);
        if (owner == place_.part) {
          store_shared_16(Shape::base() + at, {__float_as_uint(own[0]), __float_as_uint(own[1]),
                                               __float_as_uint(own[2]), __float_as_uint(own[3])});
        } else {
          send_16(there + at, barrier, own[0], own[1], own[2], own[3]);
        }
      }
      if (++owner == place_.parts) owner = 0, ++turn;
    }
  }

  // Waits for what the others send to the group.
  __device__ __forceinline__ void wait_for_others(int group) const { wait(written(group), 0); }

  // Sums the gates, or with `half` 1 their partners, of the `turn`-th slab that this CTA owns.
  __device__ __forceinline__ void read(float (&sums)[Slab::kTiles * 4], u32 turn, int half) const {
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    u32 from = memory_of(place_.part) + turn * place_.parts * kPartBytes;
#pragma unroll 2
    for (u32 part = 0; part < place_.parts; ++part, from += kPartBytes) {
#pragma unroll
      for (int j = 0; j < Slab::kTiles; ++j) {
        const float4 quad =
            load_shared_16(Shape::base() + offset_of(from, half * Slab::kTiles + j));
        sums[j * 4] += quad.x, sums[j * 4 + 1] += quad.y;
        sums[j * 4 + 2] += quad.z, sums[j * 4 + 3] += quad.w;
      }
    }
  }

 private:
  // Barriers: the CTA may write to the others' memory; all have been written that a group awaits.
  __device__ __forceinline__ static u32 may_write() {
    return Shape::base() + Shape::kSumBarriersAt;
  }
  __device__ __forceinline__ static u32 written(int group) { return may_write() + 8 + group * 8; }

  __device__ __forceinline__ u32 k_tiles_of_part(u32 part) const {
    return raster_.part_k_tiles + (part < static_cast<u32>(raster_.longer_parts) ? 1 : 0);
  }
  // Where a part's memory for sums begins, which wraps around at the end of the stages.
  __device__ __forceinline__ u32 memory_of(u32 part) const {
    return k_tiles_of_part(part) % Config::kStages * Shape::kStageBytes;
  }
  __device__ __forceinline__ static u32 offset_of(u32 part, int quad) {
    const u32 at = part + quad * kQuadBytes;
    return (at < Shape::kStagesEnd ? at : at - Shape::kStagesEnd) + threadIdx.x % 128 * 16;
  }

  // Returns whether the slabs of any number of parts leave a stage for what is written out.
  static constexpr bool fits() {
    for (u32 parts = 1; parts <= kMost / Config::kCluster; ++parts) {
      const u32 bytes = ceil_div(static_cast<u32>(kSlabs), parts) * parts * kPartBytes;
      if (bytes > (Config::kStages - 1) * Shape::kStageBytes) return false;
    }
    return true;
  }
  static_assert(Shape::kStageBytes % kQuadBytes == 0 && fits(),
                "gemm sm_90a: a kernel with splits needs stages as large as all parts of its sums");
  static_assert(Shape::kSlabBytes + Shape::kBiasBytes <= Shape::kStageBytes,
                "gemm sm_90a: a kernel with splits needs a stage as large as its slabs");
  static_assert(8 + 8 * Config::kGroups <= Shape::kSumBarrierBytes);

  const ClusterPlace<Config>& place_;
  const GemmRaster& raster_;
};

}  // namespace kiln
