// The warp that copies Q, K and V to shared memory with the copy engine.
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

// Copies the keys or values of a tile from the pages that a table lists. Called by a whole warp, of
// which each lane copies other boxes. Behind the last key the table may hold anything: the last
// key's box is copied in place of those that begin there.
template <int kSlabs, int kColumns, u32 kSlabBytes, int kRows>
__device__ __forceinline__ void load_pages(u32 destination, const TensorMap& map, u32 barrier,
                                           int kv_first, const SequenceTile& tile, u32 box_rows) {
  const AttentionVarlenParams& p = tile.p;
  const int* const pages = p.block_table + tile.entry * p.block_table_row;
#pragma unroll 1
  for (u32 row = threadIdx.x % 32 * box_rows; row < kRows; row += 32 * box_rows) {
    const int key = min(kv_first + static_cast<int>(row), tile.len_kv - 1);
    const PagePlace at = page_place(p, key);
    load_rows<kSlabs, kColumns, kSlabBytes>(destination + row * 128, map, barrier,
                                            at.row - (at.row & (box_rows - 1)), tile.h_kv,
                                            __ldg(pages + at.column));
  }
}

// Called by a whole warp after the rows of a tile have been copied with the barrier landed(): when
// they have arrived, replaces those outside of `seen` by zeros, and arrives at `full`.
template <class Config, int kSlabs, int kRows>
__device__ __forceinline__ void clear_unseen(u32 destination, u32 full, u32& landed_parity,
                                             Range seen) {
  const u32 lane = threadIdx.x % 32;
  wait(AttentionSm90Shape<Config>::landed(), landed_parity);
  landed_parity ^= 1;
  for (u32 row = lane / 8; row < kRows * kSlabs; row += 4) {
    if (!seen.contains(static_cast<int>(row % kRows))) {
      store_shared_16(destination + row * 128 + lane % 8 * 16, {0, 0, 0, 0});
    }
  }
  fence_async_proxy();
  __syncwarp();
  if (lane == 0) arrive(full);
  __syncwarp();
}

// Copies the tiles of one query tile. Every function is called by a whole warp.
template <class Config, class Args>
class TileLoader {
  using Shape = AttentionSm90Shape<Config>;
  using Storage = typename Config::Storage;
  using Variant = typename Args::Variant;

 public:
  using Tile = typename Storage::Tile;

  __device__ __forceinline__ explicit TileLoader(const Args& args) : args_(args) {}

  // Rows behind a sequence that are another's are replaced by zeros, so that no result depends on
  // them. That happens in finish_q(), between which and start_q() load_k() may be called.
  __device__ __forceinline__ void start_q(const Tile& tile) {
    const auto ring = Shape::q_ring();
    wait(ring.empty(q_at_.stage), q_at_.parity);
    clears_q_ =
        !Storage::kEndsInZeros && !Shape::kScalesQueries && tile.row_count() < Shape::kBlockQ;
    if constexpr (Config::kTilts) {
      // Of scores, which are multiplied by the scale, and negated if that is negative.
      const Position at = tile.position(0, 0);
      const float scale = call_of(args_.call.params()).scale * args_.call.variant().tilt_factor(at);
      const float growth =
          args_.call.variant().tilt(at) * kLog2e * reciprocal_approx(exponent_scales(fabsf(scale)));
      write_growth<Config>(q_at_.stage, scale < 0.0f ? -growth : growth);
    }
    if (leads()) {
      const u32 barrier = Shape::kScalesQueries ? Shape::landed_q(q_at_.stage)
                          : clears_q_           ? Shape::landed()
                                                : ring.full(q_at_.stage);
      const auto load = [&](int row, int head) {
        load_rows<Shape::kSlabs, Shape::kSlabColumns, Shape::kQSlabBytes>(
            Shape::q(q_at_.stage), args_.q, barrier, row, head, tile.q_batch());
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
  __device__ __forceinline__ void finish_q(const Tile& tile) {
    if (!Storage::kEndsInZeros && clears_q_) {
      clear_unseen<Config, Shape::kSlabs, Shape::kBlockQ>(Shape::q(q_at_.stage),
                                                          Shape::q_ring().full(q_at_.stage),
                                                          landed_parity_, {0, tile.row_count()});
    }
    q_at_.advance();
  }

  __device__ __forceinline__ void load_k(const Tile& tile, int kv_first) {
    const auto ring = Shape::k_ring();
    wait(ring.empty(k_at_.stage), k_at_.parity);
    load_keys<Shape::kSlabs>(Shape::k(k_at_.stage), args_.k, ring.full(k_at_.stage), tile, kv_first,
                             box_rows(tile).keys);
    k_at_.advance();
  }

  // Values outside of `seen`, which no query sees, are replaced by zeros: they may be NaN, and
  // their weight of 0 would not hide this.
  __device__ __forceinline__ void load_v(const Tile& tile, int kv_first, Range seen) {
    constexpr bool kClears = Variant::kMasks || !Storage::kEndsInZeros;
    const auto ring = loaded_v_ring();
    wait(ring.empty(v_at_.stage), v_at_.parity);
    const u32 full = ring.full(v_at_.stage), destination = loaded_v();
    const int end = kv_first + Shape::kBlockKv;
    const int kv_end = Storage::kEndsInZeros ? min(end, tile.all_keys()) : end;
    const bool clears = kClears && (kv_first < seen.begin || kv_end > seen.end);
    load_keys<Shape::kSlabsV>(destination, args_.v, clears ? Shape::landed() : full, tile, kv_first,
                              box_rows(tile).values);
    if (clears) {
      clear_unseen<Config, Shape::kSlabsV, Shape::kBlockKv>(
          destination, full, landed_parity_,
          {max(seen.begin - kv_first, 0), max(seen.end - kv_first, 0)});
    }
    v_at_.advance();
  }

 private:
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 32 == 0; }

  // Values that other warps transpose have stages of their own.
  using ValueRing =
      conditional<Shape::kMultipliesBytes, typename Shape::RawRing, typename Shape::KvRing>;
  __device__ __forceinline__ static ValueRing loaded_v_ring() {
    if constexpr (Shape::kMultipliesBytes)
      return Shape::raw_ring();
    else
      return Shape::v_ring();
  }
  __device__ __forceinline__ u32 loaded_v() const {
    return Shape::kMultipliesBytes ? Shape::raw_v(v_at_.stage) : Shape::v(v_at_.stage);
  }

  struct BoxRows {
    u32 keys = 0, values = 0;
  };
  __device__ __forceinline__ static BoxRows box_rows(const Tile& tile) {
    if constexpr (Storage::kPaged) {
      return {static_cast<u32>(tile.p.box_rows), static_cast<u32>(tile.p.value_box_rows)};
    }
    return {};
  }

  template <int kSlabs>
  __device__ __forceinline__ static void load_keys(u32 destination, const TensorMap& map,
                                                   u32 barrier, const Tile& tile, int kv_first,
                                                   u32 box_rows) {
    if (leads()) {
      arrive_expecting(barrier, kSlabs * Shape::kKvSlabBytes);
      if constexpr (!Storage::kPaged) {
        load_rows<kSlabs, Shape::kSlabColumns, Shape::kKvSlabBytes>(
            destination, map, barrier, tile.key_row(kv_first), tile.h_kv, tile.key_batch());
      }
    }
    __syncwarp();
    if constexpr (Storage::kPaged) {
      load_pages<kSlabs, Shape::kSlabColumns, Shape::kKvSlabBytes, Shape::kBlockKv>(
          destination, map, barrier, kv_first, tile, box_rows);
      __syncwarp();
    }
  }

  const Args& args_;
  typename Shape::QRing::Position q_at_ = Shape::QRing::producer();
  typename Shape::KvRing::Position k_at_ = Shape::KvRing::producer();
  typename ValueRing::Position v_at_ = ValueRing::producer();
  u32 landed_parity_ = 0;
  bool clears_q_ = false;
};

// The keys that any query of a tile's head sees: a key that other tiles see has a value.
template <class Variant, class Tile>
__device__ __forceinline__ Range seen_keys(const Variant& variant, const Tile& tile) {
  const Range all = {0, tile.all_keys()};
  if constexpr (!Variant::kMasks) return all;
  return intersection(all, variant.binding_range(tile.all_rows()));
}

// K of a tile is copied before V of the tile before it, in the order in which they are used; each
// only if other warps do not gather it.
template <class Config, class Args>
__device__ __forceinline__ void load_tiles(const Args& args, bool gathers_keys,
                                           bool gathers_values) {
  using Loader = TileLoader<Config, Args>;
  // Meanwhile the scheduler warp finds out what there is to do.
  if (threadIdx.x % 32 == 0) {
    prefetch_map(args.q);
    if (!gathers_keys) prefetch_map(args.k);
    if (!gathers_values) prefetch_map(args.v);
  }
  __syncwarp();
  Loader loader(args);
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
    const typename Loader::Tile tile(args.call.params(), walk.place());
    const Range seen = seen_keys(args.call.variant(), tile);
    loader.start_q(tile);
    typename WalkReader<Config>::KeyTile current{0, 0, 0, 0};
    if (!gathers_keys) current = walk.next();
    if (current.exists) loader.load_k(tile, current.kv_first);
    loader.finish_q(tile);
    // Not before Q is there: steps of the walk are published as math warps have read others.
    if (gathers_keys) walk.skip_keys();
#pragma unroll 1
    while (current.exists) {
      const auto next = walk.next();
      if (next.exists) loader.load_k(tile, next.kv_first);
      if (!gathers_values) loader.load_v(tile, current.kv_first, seen);
      current = next;
    }
  }
}

}  // namespace kiln
