// The warps that copy Q, K and V to shared memory with the copy engine.
#pragma once
#include "/kiln/attention/sm90/tilt.cuh"
#include "/kiln/attention/sm90/walk.cuh"
#include "/kiln/attention/varlen/pages.cuh"

namespace kiln {

// Called by one thread: copies the rows from `row` on of one head, slab by slab of 128 bytes.
template <int kSlabs, int kColumns, u32 kSlabBytes>
__device__ __forceinline__ void load_rows(u32 destination, const TensorMap& map, u32 barrier,
                                          int row, int head, int batch) {
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
    load_box(destination + slab * kSlabBytes, map, barrier, slab * kColumns, row, head, batch);
  }
}

// Where a tile of keys begins, in coordinates of the tensor maps of K and V. In pages, each lane
// holds where its own box begins.
struct KeyPlace {
  int row, batch;
};

// Behind the last key the table of pages may hold anything: the last key's box is copied in place
// of those that begin there.
template <class Storage, class Tile>
__device__ __forceinline__ KeyPlace key_place(const Tile& tile, int kv_first) {
  if constexpr (Storage::kPaged) {
    const AttentionVarlenParams& p = tile.p;
    const int row = static_cast<int>(threadIdx.x % 32) * p.box_rows;
    const PagePlace at = page_place(p, min(kv_first + row, tile.len_kv - 1));
    const int page = __ldg(p.block_table + tile.entry * p.block_table_row + at.column);
    return {at.row - (at.row & (p.box_rows - 1)), page};
  } else {
    return {tile.key_row(kv_first), tile.key_batch()};
  }
}

// Copies the keys or values of a tile to slabs of kRows rows. Called by a whole warp. In pages, one
// lane copies the boxes of all: copies with coordinates of each lane's own would be a loop that is
// slower.
template <class Storage, int kSlabs, int kColumns, int kRows, class Tile>
__device__ __forceinline__ void load_keys(u32 destination, const TensorMap& map, u32 barrier,
                                          const Tile& tile, const KeyPlace& place) {
  constexpr u32 kSlabBytes = kRows * 128;
  if (elect_lane()) arrive_expecting(barrier, kSlabs * kSlabBytes);
  __syncwarp();
  if constexpr (Storage::kPaged) {
    const u32 box_rows = static_cast<u32>(tile.p.box_rows);
    u32 lane = 0;
#pragma unroll 1
    for (u32 row = 0; row < kRows; row += box_rows, ++lane) {
      const int page = __shfl_sync(~0u, place.batch, lane);
      const int first = __shfl_sync(~0u, place.row, lane);
      if (elect_lane()) {
        load_rows<kSlabs, kColumns, kSlabBytes>(destination + row * 128, map, barrier, first,
                                                tile.h_kv, page);
      }
    }
  } else if (elect_lane()) {
    load_rows<kSlabs, kColumns, kSlabBytes>(destination, map, barrier, place.row, tile.h_kv,
                                            place.batch);
  }
  __syncwarp();
}

// Returns the key that threads copy to the place of `key`. Rows that no query sees may be NaN,
// which a weight of 0 would not hide, and the table of pages may hold anything for them, or end:
// the nearest row that a query sees is there again instead.
__device__ __forceinline__ int nearest_seen(int key, Range seen) {
  return max(min(key, seen.end - 1), seen.begin);
}

// Called by a whole warp when rows are there that threads have written or copied: tells those that
// wait for them at `full`, to multiply them.
__device__ __forceinline__ void announce(u32 full) {
  fence_async_proxy();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(full);
  __syncwarp();
}

// Called by a whole warp after the rows of a tile have been copied with the barrier `landed`: when
// they have arrived, replaces those outside of `seen` by zeros, and arrives at `full`.
template <int kSlabs, int kRows>
__device__ __forceinline__ void clear_unseen(u32 destination, u32 landed, u32& landed_parity,
                                             u32 full, Range seen) {
  const u32 lane = threadIdx.x % 32;
  wait(landed, landed_parity);
  landed_parity ^= 1;
  for (u32 row = lane / 8; row < kRows * kSlabs; row += 4) {
    if (!seen.contains(static_cast<int>(row % kRows))) {
      store_shared_16(destination + row * 128 + lane % 8 * 16, {0, 0, 0, 0});
    }
  }
  announce(full);
}

// Copies the queries of each tile. Every function of the loaders is called by a whole warp.
template <class Config, class Args>
class QueryLoader {
  using Shape = AttentionSm90Shape<Config>;
  using Storage = typename Config::Storage;
  using Tile = typename Storage::Tile;

 public:
  __device__ __forceinline__ explicit QueryLoader(const Args& args) : args_(args) {}

  // Rows behind a sequence that are another's are replaced by zeros, so that no result depends on
  // them. That happens in finish(), between which and start() keys may be copied.
  __device__ __forceinline__ void start(const Tile& tile) {
    const auto ring = Shape::q_ring();
    wait(ring.empty(at_.stage), at_.parity);
    clears_ = !Storage::kEndsInZeros && !Shape::kScalesQueries && tile.row_count() < Shape::kBlockQ;
    if constexpr (Config::kTilts) {
      // Of scores, which are multiplied by the scale, and negated if that is negative.
      const Position at = tile.position(0, 0);
      const float scale = call_of(args_.call.params()).scale * args_.call.variant().tilt_factor(at);
      const float growth =
          args_.call.variant().tilt(at) * kLog2e * reciprocal_approx(exponent_scales(fabsf(scale)));
      write_growth<Config>(at_.stage, scale < 0.0f ? -growth : growth);
    }
    if (elect_lane()) {
      const u32 barrier = Shape::kScalesQueries ? Shape::landed_q(at_.stage)
                          : clears_             ? Shape::landed_q(0)
                                                : ring.full(at_.stage);
      const auto load = [&](int row, int head) {
        load_rows<Shape::kSlabs, Shape::kSlabColumns, Shape::kQSlabBytes>(
            Shape::q(at_.stage), args_.q, barrier, row, head, tile.q_batch());
      };
      if constexpr (Storage::kGroupsHeads) {
        arrive_expecting(barrier, Shape::kSlabs * 128 * tile.p.tile_queries * tile.p.tile_heads);
        load(tile.h, tile.q_row());  // heads come before rows in this map
      } else {
        arrive_expecting(barrier, Shape::kQBytes);
        load(tile.q_row(), tile.h);
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ void finish(const Tile& tile) {
    if (!Storage::kEndsInZeros && clears_) {
      clear_unseen<Shape::kSlabs, Shape::kBlockQ>(Shape::q(at_.stage), Shape::landed_q(0),
                                                  landed_parity_, Shape::q_ring().full(at_.stage),
                                                  {0, tile.row_count()});
    }
    at_.advance();
  }

 private:
  const Args& args_;
  typename Shape::QRing::Position at_ = Shape::QRing::producer();
  u32 landed_parity_ = 0;
  bool clears_ = false;
};

// Copies the keys, or the values, of each tile to stages of a ring. Where kMayClear, rows outside
// of `seen`, which no query sees, are replaced by zeros: values may be NaN there, and their weight
// of 0 would not hide this.
template <class Config, int kSlabs, class Ring, bool kMayClear>
class KeyLoader {
  using Shape = AttentionSm90Shape<Config>;
  using Storage = typename Config::Storage;

 public:
  // The stages begin at `rows`.
  __device__ __forceinline__ KeyLoader(const TensorMap& map, Ring ring, u32 rows)
      : map_(map), ring_(ring), rows_(rows) {}

  __device__ __forceinline__ void load(const typename Storage::Tile& tile, int kv_first,
                                       Range seen) {
    const KeyPlace place = key_place<Storage>(tile, kv_first);
    wait(ring_.empty(at_.stage), at_.parity);
    const u32 full = ring_.full(at_.stage);
    const u32 destination = rows_ + at_.stage * (kSlabs * Shape::kKvSlabBytes);
    const int end = kv_first + Shape::kBlockKv;
    const int kv_end = Storage::kEndsInZeros ? min(end, tile.all_keys()) : end;
    const bool clears = kMayClear && (kv_first < seen.begin || kv_end > seen.end);
    load_keys<Storage, kSlabs, Shape::kSlabColumns, Shape::kBlockKv>(
        destination, map_, clears ? Shape::landed_v() : full, tile, place);
    if (clears) {
      clear_unseen<kSlabs, Shape::kBlockKv>(
          destination, Shape::landed_v(), landed_parity_, full,
          {max(seen.begin - kv_first, 0), max(seen.end - kv_first, 0)});
    }
    at_.advance();
  }

 private:
  const TensorMap& map_;
  Ring ring_;
  u32 rows_;
  typename Ring::Position at_ = Ring::producer();
  u32 landed_parity_ = 0;
};

// The keys that any query of a tile's head sees: a key that other tiles see has a value.
template <class Variant, class Tile>
__device__ __forceinline__ Range seen_keys(const Variant& variant, const Tile& tile) {
  const Range all = {0, tile.all_keys()};
  if constexpr (!Variant::kMasks) return all;
  return intersection(all, variant.binding_range(tile.all_rows()));
}

// One warp copies the queries alone where a warpgroup brings keys and values.
template <class Config, class Args>
__device__ __forceinline__ void load_queries(const Args& args) {
  if (elect_lane()) prefetch_map(args.q);
  __syncwarp();
  QueryLoader<Config, Args> queries(args);
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
    const typename Config::Storage::Tile tile(args.call.params(), walk.place());
    queries.start(tile);
    queries.finish(tile);
    // Not before Q is there: steps of the walk are published as math warps have read others.
    walk.skip_keys();
  }
}

// Two warps copy what is in pages, and the queries beside it: one the queries and keys, the other
// one the values. Both run this code, as a call that follows other kernels finds none of it in a
// cache.
template <class Config, class Args, int kSlabs>
__device__ __forceinline__ void load_pages(const Args& args, bool are_values) {
  using Shape = AttentionSm90Shape<Config>;
  using Ring = typename Shape::KvRing;
  constexpr u32 kMeeting = 4;  // a barrier behind those of turns.cuh
  if (elect_lane()) {
    // The branches name their maps, for the reason that is given at prefetch_map().
    if (are_values) {
      prefetch_map(args.v);
    } else {
      prefetch_map(args.q);
      prefetch_map(args.k);
    }
  }
  __syncwarp();
  const TensorMap& map = are_values ? args.v : args.k;
  QueryLoader<Config, Args> queries(args);
  KeyLoader<Config, kSlabs, Ring, true> keys(map, are_values ? Shape::v_ring() : Shape::k_ring(),
                                             are_values ? Shape::v(0) : Shape::k(0));
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
    const typename Config::Storage::Tile tile(args.call.params(), walk.place());
    Range seen = {0, 0x7fffffff};
    if (are_values) {
      seen = seen_keys(args.call.variant(), tile);
    } else {
      queries.start(tile);
    }
    // Q and the first keys are needed before any values, which would delay them.
    if (are_values) sync_threads<64>(kMeeting);
    bool has_to_meet = !are_values;
#pragma unroll 1
    while (true) {
      const auto key_tile = walk.next();
      if (key_tile.exists) keys.load(tile, key_tile.kv_first, seen);
      if (has_to_meet) {
        sync_threads<64>(kMeeting);
        queries.finish(tile);
        has_to_meet = false;
      }
      if (!key_tile.exists) break;
    }
  }
}

// One warp copies all tiles. K of a tile is copied before V of the tile before it, in the order in
// which they are used.
template <class Config, class Args>
__device__ __forceinline__ void load_tiles(const Args& args) {
  using Shape = AttentionSm90Shape<Config>;
  // Meanwhile the scheduler warp finds out what there is to do.
  if (elect_lane()) {
    prefetch_map(args.q);
    prefetch_map(args.k);
    prefetch_map(args.v);
  }
  __syncwarp();
  constexpr bool kMayClear = Args::Variant::kMasks || !Config::Storage::kEndsInZeros;
  QueryLoader<Config, Args> queries(args);
  KeyLoader<Config, Shape::kSlabs, typename Shape::KvRing, false> keys(args.k, Shape::k_ring(),
                                                                       Shape::k(0));
  using ValueLoader = KeyLoader<Config, Shape::kSlabsV, typename Shape::LoadedVRing, kMayClear>;
  ValueLoader values(args.v, Shape::loaded_v_ring(), Shape::loaded_v());
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
    const typename Config::Storage::Tile tile(args.call.params(), walk.place());
    const Range seen = seen_keys(args.call.variant(), tile);
    queries.start(tile);
    auto current = walk.next();
    if (current.exists) keys.load(tile, current.kv_first, seen);
    queries.finish(tile);
#pragma unroll 1
    while (current.exists) {
      const auto next = walk.next();
      if (next.exists) keys.load(tile, next.kv_first, seen);
      values.load(tile, current.kv_first, seen);
      current = next;
    }
  }
}

}  // namespace kiln
