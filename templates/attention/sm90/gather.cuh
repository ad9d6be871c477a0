// The warps that copy keys and values from pages of few rows. The copy engine takes some 70 cycles
// for each box, so that it would take ten times as long as the products where a page is one row;
// the threads of two warps copy such rows 16 bytes at a time instead.
//
// Engines give the keys of a prompt pages that mostly follow one another in memory, however small
// these are. A warp whose rows of a tile do so has the copy engine bring them in one box:
//
//   rows of a tile | places in memory   | copied by
//   0 .. 63        | 500, 501, .., 563  | the copy engine, as warp 0 asks
//   64 .. 127      | 564, .., 590, 7, ..| the threads of warp 1
#pragma once
#include "/kiln/attention/sm90/load.cuh"

namespace kiln {

// Copies one warp's share of the rows of each tile, those from `warp * kRows` on. Every function is
// called by a whole warp. While a tile's rows are under way, those of the tiles before it are
// waited for and announced.
template <class Config>
class TileGatherer {
  using Shape = AttentionSm90Shape<Config>;
  using Element = typename Config::Element;
  using Ring = typename Shape::KvRing;
  static constexpr u32 kTogether = 4;  // rows that a warp copies at a time
  static constexpr u32 kRows = Shape::kBlockKv / Shape::kGatheringWarps;
  static_assert(kRows * Shape::kGatheringWarps == Shape::kBlockKv && kRows % 8 == 0,
                "gather: the warps must have equal shares of a tile, in swizzled pieces of 8 rows");

 public:
  // The pages of the warp's rows: lane l has those of rows l, l + 32, ..
  static constexpr u32 kWords = (kRows + 31) / 32;
  struct Pages {
    u32 number[kWords];
  };

  // `warp` counts the gathering warps. It is uniform to the compiler too.
  __device__ __forceinline__ explicit TileGatherer(u32 warp) : warp_(warp) {}

  // Behind the last key the table may hold anything, or end.
  __device__ __forceinline__ Pages look_up(const SequenceTile& tile, int kv_first) const {
    const int* const table = tile.p.block_table + tile.entry * tile.p.block_table_row;
    Pages pages;
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      pages.number[i] = __ldg(table + page_place(tile.p, lane_key(tile, kv_first, i)).column);
    }
    return pages;
  }

  // Where the first of the warp's rows lies, counted in the rows of all pages, if the others follow
  // it and some query sees each of them; else -1.
  __device__ __forceinline__ int run_of(const SequenceTile& tile, const Pages& pages, int kv_first,
                                        Range seen) const {
    const int first = kv_first + static_cast<int>(warp_ * kRows);
    if (tile.p.run_rows == 0 || first < seen.begin || first + static_cast<int>(kRows) > seen.end) {
      return -1;
    }
    const int lane = threadIdx.x % 32;
    bool follows = true;
    int begin = 0;
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      const int row = lane + static_cast<int>(i) * 32;
      int place = pages.number[i];
      if (tile.p.page_size != 1) {
        place = place * tile.p.page_size + page_place(tile.p, lane_key(tile, kv_first, i)).row;
      }
      if (i == 0) begin = __shfl_sync(~0u, place, 0);
      follows = follows && (place == begin + row || row >= static_cast<int>(kRows));
    }
    return __all_sync(~0u, follows) ? begin : -1;
  }

  // Copy the keys, or the values, of the number-th tile of all. `run`: see run_of().
  __device__ __forceinline__ void load_k(u32 number, const SequenceTile& tile, const TensorMap& map,
                                         int run, const Pages& pages, int kv_first, Range seen) {
    const AttentionParams& p = tile.p.call;
    const auto at = Ring::producer_after(number);
    acquire(Shape::k_ring(), at);
    const u32 destination = Shape::k(at.stage), full = Shape::k_ring().full(at.stage);
    if (run >= 0) return copy_run<Shape::kSlabs>(destination, map, full, run, tile.h_kv);
    copy_rows<Shape::kSlabs, Config::kHeadDim>(destination, tile, pages,
                                               {p.k, p.k_batch, p.k_row, p.k_head}, kv_first, seen);
    follow(full);
  }
  __device__ __forceinline__ void load_v(u32 number, const SequenceTile& tile, const TensorMap& map,
                                         int run, const Pages& pages, int kv_first, Range seen) {
    const AttentionParams& p = tile.p.call;
    const auto at = Ring::producer_after(number);
    acquire(Shape::v_ring(), at);
    const u32 destination = Shape::v(at.stage), full = Shape::v_ring().full(at.stage);
    if (run >= 0) return copy_run<Shape::kSlabsV>(destination, map, full, run, tile.h_kv);
    copy_rows<Shape::kSlabsV, Config::kHeadDimV>(
        destination, tile, pages, {p.v, p.v_batch, p.v_row, p.v_head}, kv_first, seen);
    follow(full);
  }

  // Called before a wait that may last until the math warps have read what is under way.
  __device__ __forceinline__ void flush() {
    announce<1>(under_way_ % kHalf);
    announce<0>(under_way_ / kHalf);
    under_way_ = 0;
  }

 private:
  struct Tensor {
    const void* data;
    i64 page, row, head;  // strides
  };

  // The key of a lane's word-th row, or the last one.
  __device__ __forceinline__ int lane_key(const SequenceTile& tile, int kv_first, u32 word) const {
    const int key = kv_first + static_cast<int>(warp_ * kRows + threadIdx.x % 32 + word * 32);
    return tile.first_k + min(key, tile.len_kv - 1);
  }

  __device__ __forceinline__ void acquire(const Ring& ring, const typename Ring::Position& at) {
    const u32 empty = ring.empty(at.stage);
    if (test_wait(empty, at.parity)) return;
    flush();
    wait(empty, at.parity);
  }

  // The copy engine itself announces the rows, so that those under way are announced before.
  template <int kSlabs>
  __device__ __forceinline__ void copy_run(u32 destination, const TensorMap& map, u32 full, int run,
                                           int head) {
    flush();
    if (elect_lane()) {
      arrive_expecting(full, kSlabs * kRows * 128);
      load_rows<kSlabs, Shape::kSlabColumns, Shape::kKvSlabBytes>(destination + warp_ * kRows * 128,
                                                                  map, full, run, head, 0);
    }
    __syncwarp();
  }

  // Rows that no query sees are zeros: they may be NaN, which a weight of 0 would not hide.
  template <int kSlabs, int kDim>
  __device__ __forceinline__ void copy_rows(u32 destination, const SequenceTile& tile,
                                            const Pages& pages, const Tensor& tensor, int kv_first,
                                            Range seen) const {
    if (seen.begin <= kv_first && kv_first + Shape::kBlockKv <= seen.end) {
      copy_rows<kSlabs, kDim, true>(destination, tile, pages, tensor, kv_first, seen);
    } else {
      copy_rows<kSlabs, kDim, false>(destination, tile, pages, tensor, kv_first, seen);
    }
  }
  // A lane finds out where its rows are, in pieces of 16 bytes, and tells the others. What is
  // opaque keeps the address of a row a single multiplication, and what K and V have in common out
  // of registers: with half of the instructions, prompts of D128 take 0.97 of the time.
  template <int kSlabs, int kDim, bool kAllSeen>
  __device__ __forceinline__ void copy_rows(u32 destination, const SequenceTile& tile,
                                            const Pages& pages, const Tensor& tensor, int kv_first,
                                            Range seen) const {
    const u32 lane = threadIdx.x % 32, chunk = lane % 8;
    const u32 page_stride = static_cast<u32>(tensor.page / 8);
    const u32 row_stride = static_cast<u32>(tensor.row / 8);
    const Element* const head = opaque(static_cast<const Element*>(tensor.data) +
                                       opaque(tile.h_kv) * tensor.head + chunk * 8);
    // A lane's rows are 4 apart, so that it has two places in the swizzle, by turns.
    const u32 row = warp_ * kRows + lane / 8;
    const u32 to[] = {destination + SwizzledRows<8>::offset(row, chunk),
                      destination + SwizzledRows<8>::offset(row + kTogether, chunk)};
    const u32 first_seen = opaque(seen.begin - kv_first - row), seen_rows = seen.end - seen.begin;
#pragma unroll
    for (u32 word = 0; word < kWords; ++word) {
      const PagePlace place = page_place(tile.p, lane_key(tile, kv_first, word));
      const u32 at = pages.number[word] * page_stride + place.row * row_stride;
#pragma unroll
      for (u32 i = 0; i < min(32u, kRows - word * 32); i += kTogether) {
        const u32 later = word * 32 + i, turn = later / kTogether % 2;
        const Element* const source = head + u64{__shfl_sync(~0u, at, i + lane / 8)} * 8;
        const int bytes = kAllSeen || later - first_seen < seen_rows ? 16 : 0;
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
          const bool exists = kDim % 64 == 0 || slab * 64 + static_cast<int>(chunk) * 8 < kDim;
          copy_async_16(to[turn] + slab * Shape::kKvSlabBytes + (later - turn * kTogether) * 128,
                        source + slab * 64, exists ? bytes : 0);
        }
      }
    }
  }

  // The rows that have been copied last will be announced by `full`.
  __device__ __forceinline__ void follow(u32 full) {
    commit_copies<true>();
    announce<2>(under_way_ % kHalf);
    under_way_ = under_way_ / kHalf + (full - Shape::base() - Shape::kBarriersAt) * kHalf;
  }
  // Waits until all but kPending tiles have arrived, and announces the one of the barrier, if any.
  template <int kPending>
  __device__ __forceinline__ static void announce(u32 barrier) {
    if (barrier == 0) return;
    wait_copies<true, kPending>();
    fence_async_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(Shape::base() + Shape::kBarriersAt + barrier);
    __syncwarp();
  }

  u32 warp_;
  // The barriers of tiles that are under way, as distances from the first of all, which is one of
  // Q: the older one's in the lower half; 0: none.
  static constexpr u32 kHalf = 1u << 16;
  u32 under_way_ = 0;
};

// K and V of all tiles: of a tile together. Pages are looked up a tile ahead, as far as that is the
// next one, and it is found out whether they follow one another while copies are under way: warps
// that wait for these would wait for it otherwise.
template <class Config, class Args>
__device__ __forceinline__ void gather_tiles(const Args& args, u32 warp) {
  if (args.call.params().run_rows != 0 && elect_lane()) {
    prefetch_map(args.k);
    prefetch_map(args.v);
  }
  __syncwarp();
  TileGatherer<Config> gatherer(warp);
  WalkReader<Config> walk(0);
  u32 tiles = 0;
#pragma unroll 1
  while (true) {
    gatherer.flush();
    if (!walk.next_query_tile()) break;
    const SequenceTile tile(args.call.params(), walk.place());
    const Range seen = seen_keys(args.call.variant(), tile);
    int expected = -1, run = -1;
    typename TileGatherer<Config>::Pages pages;
#pragma unroll 1
    for (auto key_tile = walk.next(); key_tile.exists; key_tile = walk.next()) {
      const int kv_first = key_tile.kv_first;
      if (kv_first != expected) {
        pages = gatherer.look_up(tile, kv_first);
        run = gatherer.run_of(tile, pages, kv_first, seen);
      }
      constexpr int kBlockKv = AttentionSm90Shape<Config>::kBlockKv;
      expected = Config::kTilts ? max(kv_first - kBlockKv, 0) : kv_first + kBlockKv;
      const auto ahead = gatherer.look_up(tile, expected);
      gatherer.load_k(tiles, tile, args.k, run, pages, kv_first, seen);
      gatherer.load_v(tiles++, tile, args.v, run, pages, kv_first, seen);
      pages = ahead;
      run = gatherer.run_of(tile, pages, expected, seen);
    }
  }
}

}  // namespace kiln
