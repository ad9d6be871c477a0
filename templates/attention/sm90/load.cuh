// The warp that copies Q, K and V to shared memory with the copy engine.
#pragma once
#include "/kiln/attention/sm90/walk.cuh"

namespace kiln {

// Called by one thread: copies the rows from `row` on of one head, slab by slab.
template <int kSlabs, u32 kSlabBytes>
__device__ __forceinline__ void load_rows(u32 destination, const TensorMap& map, u32 barrier,
                                          int row, int head, int batch) {
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
    load_box(destination + slab * kSlabBytes, map, barrier, slab * 64, row, head, batch);
  }
}

// Copies the values of a tile and replaces those outside of `seen`, which no query sees, by zeros:
// they may be NaN, and their weight of 0 would not hide this. Called by a whole warp.
template <class Config>
__device__ __forceinline__ void load_seen_values(u32 destination, const TensorMap& map, u32 full,
                                                 u32 landed_parity, int kv_first, Range seen,
                                                 int head, int batch) {
  using Shape = AttentionSm90Shape<Config>;
  const u32 lane = threadIdx.x % 32;
  if (lane == 0) {
    arrive_expecting(Shape::landed(), Shape::kVBytes);
    load_rows<Shape::kSlabsV, Shape::kKvSlabBytes>(destination, map, Shape::landed(), kv_first,
                                                   head, batch);
  }
  __syncwarp();
  wait(Shape::landed(), landed_parity);
  for (u32 row = lane / 8; row < Shape::kBlockKv * Shape::kSlabsV; row += 4) {
    if (!seen.contains(kv_first + static_cast<int>(row % Shape::kBlockKv))) {
      store_shared_16(destination + row * 128 + lane % 8 * 16, {0, 0, 0, 0});
    }
  }
  fence_async_proxy();
  __syncwarp();
  if (lane == 0) arrive(full);
  __syncwarp();
}

// K of a tile is copied before V of the tile before it, in the order in which they are used.
template <class Config, class Variant>
__device__ __forceinline__ void load_tiles(const AttentionSm90Args<Variant>& args) {
  using Shape = AttentionSm90Shape<Config>;
  const AttentionParams& params = args.call.params();
  const bool leads = threadIdx.x % 32 == 0;
  const auto q_ring = Shape::q_ring();
  const auto k_ring = Shape::k_ring(), v_ring = Shape::v_ring();
  auto q_at = q_ring.producer();
  auto k_at = k_ring.producer(), v_at = v_ring.producer();
  u32 landed_parity = 0;
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
    const QueryTile tile(params, walk.place());
    // The range is what any query of the head sees: a key that other tiles see has a value.
    Range seen = {0, params.len_kv};
    if constexpr (Variant::kMasks) {
      seen = args.call.variant().kv_range(tile.rows_from(0, params.len_q));
    }
    const auto load_k = [&](int kv_first) {
      wait(k_ring.empty(k_at.stage), k_at.parity);
      if (leads) {
        const u32 full = k_ring.full(k_at.stage);
        arrive_expecting(full, Shape::kKBytes);
        load_rows<Shape::kSlabs, Shape::kKvSlabBytes>(Shape::k(k_at.stage), args.k, full, kv_first,
                                                      tile.h_kv, tile.b);
      }
      __syncwarp();
      k_at.advance();
    };
    const auto load_v = [&](int kv_first) {
      wait(v_ring.empty(v_at.stage), v_at.parity);
      const u32 full = v_ring.full(v_at.stage), destination = Shape::v(v_at.stage);
      const int kv_end = min(kv_first + Shape::kBlockKv, params.len_kv);
      if (Variant::kMasks && (kv_first < seen.begin || kv_end > seen.end)) {
        load_seen_values<Config>(destination, args.v, full, landed_parity, kv_first, seen,
                                 tile.h_kv, tile.b);
        landed_parity ^= 1;
      } else if (leads) {
        arrive_expecting(full, Shape::kVBytes);
        load_rows<Shape::kSlabsV, Shape::kKvSlabBytes>(destination, args.v, full, kv_first,
                                                       tile.h_kv, tile.b);
      }
      __syncwarp();
      v_at.advance();
    };
    wait(q_ring.empty(q_at.stage), q_at.parity);
    if (leads) {
      const u32 full = q_ring.full(q_at.stage);
      arrive_expecting(full, Shape::kQBytes);
      load_rows<Shape::kSlabs, Shape::kQSlabBytes>(Shape::q(q_at.stage), args.q, full,
                                                   tile.first_row, tile.h, tile.b);
    }
    __syncwarp();
    q_at.advance();
    auto current = walk.next();
    if (!current.exists) continue;
    load_k(current.kv_first);
#pragma unroll 1
    for (auto next = walk.next(); next.exists; next = walk.next()) {
      load_k(next.kv_first);
      load_v(current.kv_first);
      current = next;
    }
    load_v(current.kv_first);
  }
}

}  // namespace kiln
