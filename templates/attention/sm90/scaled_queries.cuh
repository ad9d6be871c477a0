// The warps that turn bfloat16 queries into f16, in place, for the keys of a quantised cache, which
// become f16 by one instruction for two of them. A row is multiplied by a power of two that brings
// its largest element near f16's largest number; scores are divided by it again.
#pragma once
#include "/kiln/attention/sm90/load.cuh"
#include "/kiln/base/lanes.cuh"

namespace kiln {

// A lane's 16 bytes of each slab of Q.
template <class Config>
__device__ __forceinline__ void load_chunks(u32 (&words)[AttentionSm90Shape<Config>::kSlabs * 4],
                                            u32 at) {
  using Shape = AttentionSm90Shape<Config>;
#pragma unroll
  for (int slab = 0; slab < Shape::kSlabs; ++slab) {
    const float4 quad = load_shared_16(at + slab * Shape::kQSlabBytes);
    words[slab * 4] = __float_as_uint(quad.x), words[slab * 4 + 1] = __float_as_uint(quad.y);
    words[slab * 4 + 2] = __float_as_uint(quad.z), words[slab * 4 + 3] = __float_as_uint(quad.w);
  }
}
template <class Config>
__device__ __forceinline__ void store_chunks(
    u32 at, const u32 (&words)[AttentionSm90Shape<Config>::kSlabs * 4]) {
  using Shape = AttentionSm90Shape<Config>;
#pragma unroll
  for (int slab = 0; slab < Shape::kSlabs; ++slab) {
    store_shared_16(at + slab * Shape::kQSlabBytes, {words[slab * 4], words[slab * 4 + 1],
                                                     words[slab * 4 + 2], words[slab * 4 + 3]});
  }
}

// One warp's share of the rows. Called by a whole warp, when Q of the stage has arrived. Rows
// behind the sequence, which are another's, become zeros.
template <class Config>
__device__ __forceinline__ void scale_rows(u32 warp, u32 stage, int rows) {
  using Shape = AttentionSm90Shape<Config>;
  using Words = u32[Shape::kSlabs * 4];
  // Rows of a lane that are read before the first is written. Two of 256 columns spill, and one
  // does beside splits, so that wide rows are read again. Beside three math groups, this warp has
  // 32 registers.
  constexpr bool kReadsAgain = Shape::kSlabs > 2;
  constexpr u32 kTogether = kReadsAgain || Shape::kGroups == 3 ? 1 : 2;
  constexpr u32 kWarpRows = Shape::kBlockQ / Shape::kScalingWarps;
  const u32 lane = threadIdx.x % 32;
#pragma unroll 1
  for (u32 i = lane / 8; i < kWarpRows; i += 4 * kTogether) {
    const u32 row = warp * kWarpRows + i;
    // Eight lanes have the chunks of a row, in whatever order the swizzle has put them.
    const u32 at = Shape::q(stage) + row * 128 + lane % 8 * 16;
    Words words[kTogether];
#pragma unroll
    for (u32 k = 0; k < kTogether; ++k) load_chunks<Config>(words[k], at + k * 4 * 128);
#pragma unroll
    for (u32 k = 0; k < kTogether; ++k) {
      float largest = 0.0f;
#pragma unroll
      for (u32 word : words[k]) {
        largest = larger_finite(largest, first_of(word));
        largest = larger_finite(largest, second_of(word));
      }
      const int up = query_exponent(max_lanes<8>(largest));
      const float factor = power_of_two(up);
      const bool exists = static_cast<int>(row + k * 4) < rows;
      // The registers of the first reading are free meanwhile.
      if constexpr (kReadsAgain) load_chunks<Config>(words[k], at);
#pragma unroll
      for (u32& word : words[k]) {
        const u32 pair = pack2<f16>(first_of(word) * factor, second_of(word) * factor);
        word = exists ? pair : 0;
      }
      store_chunks<Config>(at + k * 4 * 128, words[k]);
      if (lane % 8 == 0) {
        store_word(Shape::row_factors(stage) + (row + k * 4) * 4,
                   __float_as_uint(power_of_two(-up)));
      }
    }
  }
}

// Clears a warp's share of the rows that no copy fills: of a tile whose heads are no divisor of its
// rows. scale_rows() reads all rows, and no other lane reads the same bytes.
template <class Config>
__device__ __forceinline__ void clear_spare_rows(u32 warp, u32 copied_rows) {
  using Shape = AttentionSm90Shape<Config>;
  constexpr u32 kWarpRows = Shape::kBlockQ / Shape::kScalingWarps;
  const u32 lane = threadIdx.x % 32, first = warp * kWarpRows + lane / 8;
#pragma unroll 1
  for (u32 row = first; row < (warp + 1) * kWarpRows; row += 4) {
    if (row < copied_rows) continue;
#pragma unroll 1
    for (u32 stage = 0; stage < Config::kQStages; ++stage) {
      constexpr u32 kWords = Shape::kSlabs * 4;
      const u32 zeros[kWords] = {};
      store_chunks<Config>(Shape::q(stage) + row * 128 + lane % 8 * 16, zeros);
    }
  }
}

// Q of all query tiles, which load_queries() has copied.
template <class Config, class Args>
__device__ __forceinline__ void scale_queries(const Args& args, u32 warp) {
  using Shape = AttentionSm90Shape<Config>;
  if constexpr (Config::Storage::kGroupsHeads) {
    const AttentionVarlenParams& p = args.call.params();
    clear_spare_rows<Config>(warp, p.tile_queries * p.tile_heads);
  }
  WalkReader<Config> walk(0);
  u32 tiles = 0;
#pragma unroll 1
  while (walk.next_query_tile()) {
    const typename Config::Storage::Tile tile(args.call.params(), walk.place());
    const auto at = Shape::QRing::consumer_after(tiles++);
    wait(Shape::landed_q(at.stage), at.parity);
    scale_rows<Config>(warp, at.stage, tile.row_count());
    fence_async_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(Shape::q_ring().full(at.stage));
    walk.skip_keys();
  }
}

}  // namespace kiln
