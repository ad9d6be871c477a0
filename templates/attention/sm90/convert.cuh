// The warpgroup that turns the bytes of a quantised cache into operands of wgmma, which multiplies
// no bytes with 16-bit queries: into f16, in which every byte is exact.
//
//   pages or rows --cp.async--> the lane's own bytes --widened--> K and V stages --> math groups
//
// A lane widens only what it has copied itself, so that no other thread waits for the bytes. Those
// of the next tile are under way while the others of this one are widened.
#pragma once
#include "/kiln/attention/sm90/load.cuh"

namespace kiln {

// One warp's share of the rows of each tile. Every function is called by a whole warp. kBatch: so
// many reads of bytes are under way before the first is written. Each takes some 30 cycles, and
// more while the tensor cores read.
template <class Config, u32 kBatch>
class KeyConverter {
  using Shape = AttentionSm90Shape<Config>;
  using Keys = KeysOf<Config>;
  using Byte = typename Keys::Element;
  using Ring = typename Shape::KvRing;
  static constexpr u32 kWarpRows = Shape::kBlockKv / Shape::kConvertingWarps;
  static_assert(kWarpRows % 8 == 0 && kWarpRows <= 32,
                "convert: a lane looks up one row, and a warp's rows have all places in a swizzle");

  // A warp takes kRows rows of all slabs at a time. Four lanes have a slab's 64 bytes of a row;
  // the four beside them those of the next row, whose places in the swizzle are in other banks.
  template <int kDim>
  struct Split {
    static constexpr u32 kRows = 32 * 16 / Shape::raw_row_bytes(kDim), kSteps = kWarpRows / kRows;
    static_assert(kDim % 16 == 0, "convert: head dims must be multiples of 16");
    u32 row = threadIdx.x % 32 / 4 % kRows, slab = threadIdx.x % 32 / 4 / kRows;
    u32 chunk = threadIdx.x % 4;  // of 16 elements, in the slab
    __device__ __forceinline__ u32 column() const { return slab * 64 + chunk * 16; }
    // Lanes behind the end of a row have nothing to widen.
    __device__ __forceinline__ bool has_column() const {
      return Shape::raw_row_bytes(kDim) == kDim || column() < kDim;
    }
  };

 public:
  // `warp` counts the converting warps. It is uniform to the compiler too.
  __device__ __forceinline__ explicit KeyConverter(u32 warp) : first_row_(warp * kWarpRows) {}

  // The page of the lane's row.
  __device__ __forceinline__ u32 look_up(const SequenceTile& tile, int kv_first, Range seen) const {
    if constexpr (!Config::Storage::kPaged) return 0;
    const int* const table = tile.p.block_table + tile.entry * tile.p.block_table_row;
    return __ldg(table + page_place(tile.p, lane_key(tile, kv_first, seen)).column);
  }

  // Start to copy the keys, or the values, of a tile. One start_ for each finish_, in the same
  // order, or a pass_over().
  __device__ __forceinline__ void start_k(const SequenceTile& tile, u32 page, int kv_first,
                                          Range seen) const {
    const AttentionParams& p = tile.p.call;
    start<Config::kHeadDim>(Shape::raw_k(), tile, page, {p.k, p.k_batch, p.k_row, p.k_head},
                            kv_first, seen);
  }
  __device__ __forceinline__ void start_v(const SequenceTile& tile, u32 page, int kv_first,
                                          Range seen) const {
    const AttentionParams& p = tile.p.call;
    start<Config::kHeadDimV>(Shape::raw_v(), tile, page, {p.v, p.v_batch, p.v_row, p.v_head},
                             kv_first, seen);
  }
  __device__ __forceinline__ static void pass_over() { commit_copies<true>(); }

  // Widen the keys, or the values, of the number-th tile of all. Afterwards only one start_ may
  // still be under way.
  __device__ __forceinline__ void finish_k(u32 number) const {
    const auto at = Ring::producer_after(number);
    finish<Config::kHeadDim>(Shape::k(at.stage), Shape::raw_k(), Shape::k_ring(), at);
  }
  __device__ __forceinline__ void finish_v(u32 number) const {
    const auto at = Ring::producer_after(number);
    finish<Config::kHeadDimV>(Shape::v(at.stage), Shape::raw_v(), Shape::v_ring(), at);
  }

 private:
  struct Tensor {
    const void* data;
    i64 batch, row, head;  // strides
  };

  __device__ __forceinline__ int lane_key(const SequenceTile& tile, int kv_first,
                                          Range seen) const {
    const int row = static_cast<int>(first_row_ + threadIdx.x % 32 % kWarpRows);
    return tile.first_k + nearest_seen(kv_first + row, seen);
  }
  template <int kDim>
  __device__ __forceinline__ u32 raw_at(u32 raw) const {
    return raw + first_row_ * Shape::raw_row_bytes(kDim) + threadIdx.x % 32 * 16;
  }

  // A lane finds out where its row is, in pieces of 16 bytes, and tells the others.
  template <int kDim>
  __device__ __forceinline__ void start(u32 raw, const SequenceTile& tile, u32 page,
                                        const Tensor& tensor, int kv_first, Range seen) const {
    const Split<kDim> lane;
    const int key = lane_key(tile, kv_first, seen);
    const Byte* head = static_cast<const Byte*>(tensor.data) + opaque(tile.h_kv) * tensor.head;
    u32 at = 0;
    if constexpr (Config::Storage::kPaged) {
      at = page * static_cast<u32>(tensor.batch / 16) +
           page_place(tile.p, key).row * static_cast<u32>(tensor.row / 16);
    } else {
      head += opaque(tile.entry) * tensor.batch;
      at = key * static_cast<u32>(tensor.row / 16);
    }
    head += lane.has_column() ? lane.column() : 0;
    asm volatile("" : "+l"(head));  // so that one addition makes each address
    const u32 to = raw_at<kDim>(raw);
#pragma unroll
    for (u32 step = 0; step < Split<kDim>::kSteps; ++step) {
      const u32 row = step * Split<kDim>::kRows + lane.row;
      copy_async_16(to + step * 512, head + u64{__shfl_sync(~0u, at, row)} * 16, 16);
    }
    commit_copies<true>();
  }

  template <int kDim>
  __device__ __forceinline__ void finish(u32 destination, u32 raw, const Ring& ring,
                                         const typename Ring::Position& at) const {
    const Split<kDim> lane;
    wait_copies<true, 1>();
    wait(ring.empty(at.stage), at.parity);
    constexpr u32 kSteps = Split<kDim>::kSteps, kStepRows = Split<kDim>::kRows;
    const u32 from = raw_at<kDim>(raw);
    const u32 first = destination + lane.slab * Shape::kKvSlabBytes +
                      SwizzledRows<8>::offset(first_row_ + lane.row, 2 * lane.chunk);
    const u32 second = first ^ 16;
    if (lane.has_column()) {
#pragma unroll
      for (u32 begin = 0; begin < kSteps; begin += kBatch) {
        float4 bytes[kBatch];
#pragma unroll
        for (u32 i = 0; i < kBatch && begin + i < kSteps; ++i) {
          bytes[i] = load_shared_16(from + (begin + i) * 512);
        }
#pragma unroll
        for (u32 i = 0; i < kBatch && begin + i < kSteps; ++i) {
          const u32 row = (begin + i) * kStepRows, places = row % 8 * 16;
          store_shared_16((first ^ places) + row * 128, widened(bytes[i].x, bytes[i].y));
          store_shared_16((second ^ places) + row * 128, widened(bytes[i].z, bytes[i].w));
        }
      }
    }
    announce(ring.full(at.stage));
  }

  __device__ __forceinline__ static uint4 widened(float first, float second) {
    u32 words[4];
    widen<Keys, false>(__float_as_uint(first), words[0], words[1]);
    widen<Keys, false>(__float_as_uint(second), words[2], words[3]);
    return {words[0], words[1], words[2], words[3]};
  }

  u32 first_row_;
};

// The keys and values of all tiles. Pages are looked up while the tile before is widened.
template <class Config, u32 kBatch, class Args>
__device__ __forceinline__ void convert_keys(const Args& args, u32 warp) {
  const KeyConverter<Config, kBatch> converter(warp);
  WalkReader<Config> walk(0);
  u32 tiles = 0;
#pragma unroll 1
  while (walk.next_query_tile()) {
    const SequenceTile tile(args.call.params(), walk.place());
    const Range seen = seen_keys(args.call.variant(), tile);
    // One place starts K, and one V: twice as much code for the first tile takes long to compile.
    bool is_under_way = false;
#pragma unroll 1
    while (true) {
      const auto next = walk.next();
      u32 page = 0;
      if (next.exists) page = converter.look_up(tile, next.kv_first, seen);
      if (is_under_way) converter.finish_k(tiles);
      if (next.exists) {
        converter.start_k(tile, page, next.kv_first, seen);
      } else {
        converter.pass_over();
      }
      if (is_under_way) converter.finish_v(tiles++);
      if (!next.exists) break;
      converter.start_v(tile, page, next.kv_first, seen);
      is_under_way = true;
    }
  }
}

}  // namespace kiln
