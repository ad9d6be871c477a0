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
//
// The copies of threads are ordinary writes, which wgmma reads after a fence alone. The warp that
// copies the queries waits for them, fences and announces them, so that the others never wait for
// what they have copied:
//
//   gathering warps --gathered_k(stage)--> announcing warp --k_ring().full(stage)--> math warps
#pragma once
#include "/kiln/attention/sm90/load.cuh"

namespace kiln {

// Copies one warp's share of the rows of each tile, those from `warp * kRows` on. Every function is
// called by a whole warp.
template <class Config>
class TileGatherer {
  using Shape = AttentionSm90Shape<Config>;
  using Element = typename Config::Element;
  using Ring = typename Shape::KvRing;
  static constexpr u32 kTogether = 4;  // rows that an instruction copies
  static constexpr u32 kRows = Shape::kBlockKv / Shape::kGatheringWarps;
  // The places of so many groups of rows are found before any of them is copied: a warp that waits
  // for each shuffle, and for each address to be read, takes 1.2 times as long.
  static constexpr u32 kAtOnce = kRows % (5 * kTogether) == 0 ? 5 : 4;
  static_assert(kRows * Shape::kGatheringWarps == Shape::kBlockKv && kRows % 8 == 0,
                "gather: the warps must have equal shares of a tile, in swizzled pieces of 8 rows");
  static_assert(kRows % (kAtOnce * kTogether) == 0,
                "gather: the groups of rows that are found at once must divide a warp's share");
  // Lane 8 g + i has row 4 i + g of each 32: the rows that are copied together are those of the
  // lanes with the same i, which is a constant of each shuffle.
  static constexpr u32 kWords = (kRows + 31) / 32;

 public:
  // Where a lane's rows are: in these pages, which the table may still have to tell, so many places
  // from their beginnings.
  struct Pages {
    u32 number[kWords], places[kWords];
  };

  // `warp` counts the gathering warps. It is uniform to the compiler too.
  __device__ __forceinline__ explicit TileGatherer(u32 warp) : warp_(warp) {}

  // Goes to the keys of a query tile. What is opaque is kept, and not computed for each of their
  // tiles.
  __device__ __forceinline__ void begin(const SequenceTile& tile) {
    const AttentionParams& p = tile.p.call;
    table_ = opaque(tile.p.block_table + tile.entry * tile.p.block_table_row);
    k_ = opaque(static_cast<const Element*>(p.k) + tile.h_kv * p.k_head + chunk() * 8);
    v_ = opaque(static_cast<const Element*>(p.v) + tile.h_kv * p.v_head + chunk() * 8);
  }

  __device__ __forceinline__ Pages look_up(const SequenceTile& tile, int kv_first,
                                           Range seen) const {
    Pages pages;
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      const int row = static_cast<int>(warp_ * kRows + lane_row(i));
      const int key = nearest_seen(kv_first + row, seen);
      const PagePlace place = page_place(tile.p, tile.first_k + key);
      pages.number[i] = __ldg(table_ + static_cast<int>(place.column));
      pages.places[i] = static_cast<u32>(place.row) * tile.p.row_places;
    }
    return pages;
  }

  // Goes to the tile of these pages.
  __device__ __forceinline__ void go_to(const SequenceTile& tile, const Pages& pages) {
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      places_[i] = pages.number[i] * tile.p.page_places + pages.places[i];
    }
    follow_ = are_run() && tile.p.run_rows != 0;
  }

  // Copy the tile's keys; then its values.
  __device__ __forceinline__ void copy_k(const SequenceTile& tile, const TensorMap& map) const {
    wait(Shape::k_ring().empty(at_.stage), at_.parity);
    copy<Shape::kSlabs, Config::kHeadDim>(Shape::k(at_.stage), Shape::gathered_k(at_.stage), map,
                                          tile.h_kv, k_, tile.p.key_pieces);
  }
  __device__ __forceinline__ void copy_v(const SequenceTile& tile, const TensorMap& map) {
    wait(Shape::v_ring().empty(at_.stage), at_.parity);
    copy<Shape::kSlabsV, Config::kHeadDimV>(Shape::v(at_.stage), Shape::gathered_v(at_.stage), map,
                                            tile.h_kv, v_, tile.p.value_pieces);
    at_.advance();
  }

 private:
  __device__ __forceinline__ static u32 chunk() { return threadIdx.x % 8; }
  __device__ __forceinline__ static u32 lane_row(u32 word) {
    return word * 32 + threadIdx.x % 8 * kTogether + threadIdx.x % 32 / 8;
  }

  // Whether the warp's rows follow one another in memory.
  __device__ __forceinline__ bool are_run() const {
    const u32 begin = __shfl_sync(~0u, places_[0], 0);
    bool follow = true;
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      const u32 row = lane_row(i);
      follow = follow && (places_[i] == begin + row || row >= kRows);
    }
    return __all_sync(~0u, follow);
  }

  template <int kSlabs, int kDim>
  __device__ __forceinline__ void copy(u32 destination, u32 gathered, const TensorMap& map,
                                       int head, const Element* rows, u32 place_pieces) const {
    destination += warp_ * kRows * 128;
    if (follow_) {
      const int first = static_cast<int>(__shfl_sync(~0u, places_[0], 0));
      if (elect_lane()) {
        arrive_expecting(gathered, kSlabs * kRows * 128);
        load_rows<kSlabs, Shape::kSlabColumns, Shape::kKvSlabBytes>(destination, map, gathered,
                                                                    first, head, 0);
      } else {
        arrive(gathered);
      }
      __syncwarp();
      return;
    }
    copy_rows<kSlabs, kDim>(destination, rows, place_pieces);
    arrive_after_copies(gathered);
  }

  template <int kSlabs, int kDim>
  __device__ __forceinline__ void copy_rows(u32 destination, const Element* rows,
                                            u32 place_pieces) const {
    const u32 row = threadIdx.x % 32 / 8;
    // A lane's rows are 4 apart, so that it has two places in the swizzle, by turns.
    const u32 to[] = {destination + SwizzledRows<8>::offset(row, chunk()),
                      destination + SwizzledRows<8>::offset(row + kTogether, chunk())};
    u32 pieces[kWords];
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) pieces[i] = places_[i] * place_pieces;
#pragma unroll
    for (u32 first = 0; first < kRows; first += kAtOnce * kTogether) {
      const Element* source[kAtOnce];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        const u32 group = first / kTogether + i;
        source[i] = rows + u64{__shfl_sync(~0u, pieces[group / 8], group % 8, 8)} * 8;
      }
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        const u32 later = first + i * kTogether, turn = later / kTogether % 2;
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
          const bool exists = kDim % 64 == 0 || slab * 64 + static_cast<int>(chunk()) * 8 < kDim;
          copy_async_16(to[turn] + slab * Shape::kKvSlabBytes + (later - turn * kTogether) * 128,
                        source[i] + slab * 64, exists ? 16 : 0);
        }
      }
    }
  }

  u32 warp_;
  const int* table_ = nullptr;                 // of the sequence
  const Element *k_ = nullptr, *v_ = nullptr;  // of the lane's columns
  typename Ring::Position at_ = Ring::producer();
  // These are of the present tile: the places of the lane's rows; whether the warp's rows follow
  // one another.
  u32 places_[kWords];
  bool follow_;
};

// K and V of all tiles: of a tile together. Pages are looked up a tile ahead, as far as that is the
// next one.
template <class Config, class Args>
__device__ __forceinline__ void gather_tiles(const Args& args, u32 warp) {
  if (args.call.params().run_rows != 0 && elect_lane()) {
    prefetch_map(args.k);
    prefetch_map(args.v);
  }
  __syncwarp();
  TileGatherer<Config> gatherer(warp);
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
    const SequenceTile tile(args.call.params(), walk.place());
    const Range seen = seen_keys(args.call.variant(), tile);
    gatherer.begin(tile);
    int expected = -1;
    typename TileGatherer<Config>::Pages ahead;
#pragma unroll 1
    for (auto key_tile = walk.next(); key_tile.exists; key_tile = walk.next()) {
      const int kv_first = key_tile.kv_first;
      if (kv_first != expected) [[unlikely]]
        ahead = gatherer.look_up(tile, kv_first, seen);
      gatherer.go_to(tile, ahead);
      gatherer.copy_k(tile, args.k);
      constexpr int kBlockKv = AttentionSm90Shape<Config>::kBlockKv;
      expected = Config::kTilts ? max(kv_first - kBlockKv, 0) : kv_first + kBlockKv;
      // Not before go_to(), which would wait for these reads too.
      ahead = gatherer.look_up(tile, expected, seen);
      gatherer.copy_v(tile, args.v);
    }
  }
}

// One warp copies the queries and announces the keys and values that others gather.
template <class Config, class Args>
__device__ __forceinline__ void announce_gathered(const Args& args) {
  using Shape = AttentionSm90Shape<Config>;
  if (elect_lane()) prefetch_map(args.q);
  __syncwarp();
  QueryLoader<Config, Args> queries(args);
  WalkReader<Config> walk(0);
  auto at = Shape::KvRing::consumer();
#pragma unroll 1
  while (walk.next_query_tile()) {
    const typename Config::Storage::Tile tile(args.call.params(), walk.place());
    queries.start(tile);
    queries.finish(tile);
#pragma unroll 1
    for (auto key_tile = walk.next(); key_tile.exists; key_tile = walk.next()) {
      wait(Shape::gathered_k(at.stage), at.parity);
      announce(Shape::k_ring().full(at.stage));
      wait(Shape::gathered_v(at.stage), at.parity);
      announce(Shape::v_ring().full(at.stage));
      at.advance();
    }
  }
}

}  // namespace kiln
