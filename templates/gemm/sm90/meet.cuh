// Sums a tile whose K is divided among CTAs of no cluster, through global memory.
#pragma once
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

// The math groups of the same index of all parts meet on their own. Each writes its sums to the
// workspace, then arrives at a word of memory; once all have, each adds up all parts of some slabs
// of the output, in the order of K, so the sum does not depend on timing.
//
// Whoever arrives early looks a few times whether all have arrived, and leaves if they have not:
// it must not wait, since the others may need its multiprocessor. The last one takes over the
// slabs of all that have left.
//
// The word has the launch's nonce in its upper 44 bits, so its content before does not matter
// (ticket.cuh says what a nonce and programmatic launches need). Below are a bit for each part that
// has left, how many parts are done with the word, and one more than have arrived. The last one
// that is done leaves 0, so that a replayed graph may reuse its nonce.
template <class Config>
class MemorySum {
  using Shape = Sm90Shape<Config>;
  static constexpr int kTilesN = Config::kBlockN / 8;
  static constexpr int kGroupQuads = Shape::kTilesM * kTilesN * 128;
  static constexpr u64 kArrived = 1, kDone = 1 << 6, kLeft = 1 << 12, kCount = 63;
  static constexpr int kLooks = 6;  // each takes some 0.6 us

 public:
  __device__ __forceinline__ MemorySum(const GemmParams& params, const ClusterPlace<Config>& place,
                                       int group)
      : part_(place.part), parts_(place.parts) {
    const u32 tile = place.index, tiles = place.clusters;
    word_ = static_cast<u64*>(params.workspace) + tile * Config::kGroups + group;
    quads_ = reinterpret_cast<float4*>(static_cast<char*>(params.workspace) +
                                       gemm_flag_bytes(tiles * Config::kGroups)) +
             (static_cast<i64>(tile) * parts_ * Config::kGroups + group) * kGroupQuads +
             threadIdx.x % 128;
    opened_ = params.nonce << 20 | 1;
  }

  // Called ahead of the products, behind wait_for_launches().
  __device__ __forceinline__ void look() {
    if (leads()) seen_ = *static_cast<const volatile u64*>(word_);
  }
  // Opens the word, unless another part has.
  __device__ __forceinline__ void open() const {
    if (leads() && seen_ >> 20 != opened_ >> 20) atomicCAS(word_, seen_, opened_);
  }

  // Writes the accumulators of the group's `tile_m`-th 64 rows.
  __device__ __forceinline__ void write(const float (&acc)[Shape::kRegisters], int tile_m) const {
    float4* const own = quads_ + static_cast<i64>(part_) * (Config::kGroups * kGroupQuads);
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      own[(tile_m * kTilesN + j) * 128] = {acc[j * 4], acc[j * 4 + 1], acc[j * 4 + 2],
                                           acc[j * 4 + 3]};
    }
  }

  // Called by one thread of the group once all of it have written and met. Returns a bit for each
  // part whose slabs this one adds up; `has_slabs`: whether it has some of its own.
  __device__ __forceinline__ u32 arrive(bool has_slabs) {
    const u32 own = 1u << part_;
    const u64 before = add(has_slabs ? kArrived : kArrived + kDone);
    if (!has_slabs) last_seen_ = before, is_done_ = true;
    if (arrived(before) == parts_ - 1) return own | left(before);
    if (!has_slabs) return 0;
#pragma unroll 1
    for (int i = 0; i < kLooks; ++i) {
      u64 now;
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                   : "=l"(now)
                   : "l"(__cvta_generic_to_global(word_))
                   : "memory");
      if (arrived(now) == parts_) return own;
    }
    last_seen_ = add(kDone + (kLeft << part_)), is_done_ = true;
    return arrived(last_seen_) == parts_ ? own : 0;
  }

  // Called by the same thread behind all else, for which the word's round trip would be in the way.
  __device__ __forceinline__ void end() {
    if (!is_done_) last_seen_ = add(kDone);
    if ((last_seen_ >> 6 & kCount) == parts_ - 1) *static_cast<volatile u64*>(word_) = 0;
  }

  // Sums kTiles tiles of 8 columns from tile `first` on of the group's `first_m`-th 64 rows; and as
  // many at `second` of `second_m`, if `has_second`, whose loads are then under way at once.
  template <int kTiles>
  __device__ __forceinline__ void read(float (&sums)[2][kTiles * 4], int first_m, int first,
                                       bool has_second, int second_m, int second) const {
    constexpr int kAhead = kTiles >= 8 ? 2 : 4;
    const float4* source = quads_ + (first_m * kTilesN + first) * 128;
    const int to_second = (second_m - first_m) * kTilesN + second - first;
#pragma unroll
    for (int i = 0; i < kTiles * 8; ++i) sums[i / (kTiles * 4)][i % (kTiles * 4)] = 0.0f;
#pragma unroll(kAhead)
    for (u32 part = 0; part < parts_; ++part) {
      float4 quads[2][kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        quads[0][j] = __ldcg(source + j * 128);
        quads[1][j] = {0, 0, 0, 0};
        if (has_second) quads[1][j] = __ldcg(source + (to_second + j) * 128);
      }
      source += Config::kGroups * kGroupQuads;
#pragma unroll
      for (int j = 0; j < kTiles * 2; ++j) {
        float* sum = &sums[j / kTiles][j % kTiles * 4];
        const float4& quad = quads[j / kTiles][j % kTiles];
        sum[0] += quad.x, sum[1] += quad.y, sum[2] += quad.z, sum[3] += quad.w;
      }
    }
  }

 private:
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 128 == 0; }
  __device__ __forceinline__ u32 arrived(u64 word) const {
    return static_cast<u32>((word - 1) & kCount);
  }
  __device__ __forceinline__ static u32 left(u64 word) {
    return static_cast<u32>(word >> 12) & 0xff;
  }
  // Returns the word before; what the group has written comes first.
  __device__ __forceinline__ u64 add(u64 value) const {
    u64 before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(__cvta_generic_to_global(word_)), "l"(value)
                 : "memory");
    return before;
  }

  u32 part_, parts_;
  u64* word_;
  float4* quads_;
  u64 opened_, seen_ = 0, last_seen_ = 0;
  bool is_done_ = false;
};

}  // namespace kiln
