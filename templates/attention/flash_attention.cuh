// Attention forward for tensor cores with mma.sync (sm_80 and later): one CTA computes a tile of
// queries of one head, walking over tiles of keys with the online softmax.
//
// Shared memory, rows in SwizzledRows, no padding between:
//
//   | Q: kBlockQ x dim | K: kBlockKv x dim | V: kBlockKv x dim_v |
//
//   tile j     K arrives | S = Q K^T        | softmax, O += P V          |
//   loading              | V of tile j      | K of tile j + 1            |
#pragma once
#include "/kiln/attention/addressing.cuh"
#include "/kiln/attention/builtin_variants.cuh"
#include "/kiln/attention/load.cuh"
#include "/kiln/attention/mask.cuh"
#include "/kiln/attention/params.h"
#include "/kiln/attention/products.cuh"
#include "/kiln/attention/softmax.cuh"
#include "/kiln/attention/store.cuh"
#include "/kiln/attention/tiles.cuh"

namespace kiln {

// The argument block: the parameters, then the variant's 8-byte slots. Bases and not members, since
// an empty variant must take no space.
template <class Variant>
struct AttentionArgs : AttentionParams, Variant {
  __device__ __forceinline__ const AttentionParams& params() const { return *this; }
  __device__ __forceinline__ const Variant& variant() const { return *this; }
};

template <class Config>
struct AttentionTiles {
  static_assert(is_same<typename Config::Element, f16> || is_same<typename Config::Element, bf16>,
                "flash_attention: Element must be kiln::f16 or kiln::bf16");
  static_assert(Config::kHeadDim % 8 == 0 && Config::kHeadDim >= 8 && Config::kHeadDim <= 256,
                "flash_attention: kHeadDim must be a multiple of 8, 8 to 256");
  static_assert(Config::kHeadDimV % 8 == 0 && Config::kHeadDimV >= 8 && Config::kHeadDimV <= 256,
                "flash_attention: kHeadDimV must be a multiple of 8, 8 to 256");
  static_assert(Config::kBlockKv % 16 == 0 && Config::kBlockKv >= 16,
                "flash_attention: kBlockKv must be a multiple of 16");
  static_assert(Config::kWarps >= 1 && (Config::kBlockQ == 16 * Config::kWarps ||
                                        Config::kBlockQ == 32 * Config::kWarps),
                "flash_attention: kBlockQ must be 16 or 32 rows for each of kWarps warps");

  static constexpr int kThreads = Config::kWarps * 32;
  static constexpr int kWarpRows = Config::kBlockQ / Config::kWarps;
  using Q = TileShape<Config::kBlockQ, Config::kHeadDim, kThreads, Config::kAligned>;
  using K = TileShape<Config::kBlockKv, Config::kHeadDim, kThreads, Config::kAligned>;
  using V = TileShape<Config::kBlockKv, Config::kHeadDimV, kThreads, Config::kAligned>;
  using ScoreMap = FragMap<kWarpRows / 16, Config::kBlockKv / 8>;
  using OutMap = FragMap<kWarpRows / 16, V::kChunks>;

  static constexpr u32 kKOffset = Config::kBlockQ * Q::Layout::kRowBytes;
  static constexpr u32 kVOffset = kKOffset + Config::kBlockKv * K::Layout::kRowBytes;
  static_assert(kVOffset + Config::kBlockKv * V::Layout::kRowBytes ==
                    attention_shared_bytes(Config::kHeadDim, Config::kHeadDimV, Config::kBlockQ,
                                           Config::kBlockKv),
                "flash_attention: the tiles must fill what attention_shared_bytes() asks for");
};

// The main loop, for any variant, addressing and walk over the keys.
template <class Config, class Variant, class Addressing, class Walk>
__device__ __forceinline__ void attend(float scale, const Variant& variant, const Addressing& rows,
                                       Walk walk) {
  using Tiles = AttentionTiles<Config>;
  using Element = typename Config::Element;
  extern __shared__ __align__(128) u8 shared_memory[];
  const u32 q_tile = shared_address(shared_memory);
  const u32 k_tile = q_tile + Tiles::kKOffset;
  const u32 v_tile = q_tile + Tiles::kVOffset;
  const int warp_row = threadIdx.x / 32 * Tiles::kWarpRows;
  const Range range = walk.range();
  const auto load_k = [&](const KvTile& tile) {
    load_tile<typename Tiles::K>(k_tile, tile.first, range,
                                 [&](int kv, int ahead) { return rows.k_row(kv, ahead); });
  };

  // The sign of the scale goes to Q and its size, if nothing sees the logits, into the exponent,
  // where a scale of 0 becomes tiny instead: 0 * -inf would be no number.
  const u32 sign = scale < 0.0f ? 0x80008000u : 0u;
  const float size = fabsf(scale);
  const float exponent_scale = Variant::kTransformsLogits ? kLog2e : fmaxf(size * kLog2e, 1e-30f);

  OnlineSoftmax<typename Tiles::ScoreMap> softmax;
  softmax.start([&](int r) {
    RowSum sum{-KILN_INFINITY, 0.0f};
    if constexpr (Variant::kStartsRows) {
      variant.row_init(sum, rows.position(warp_row + Tiles::ScoreMap::row(r), 0));
    }
    return sum;
  });
  Fragment<typename Tiles::OutMap> out;
  out.clear();

  KvTile tile = walk.next();
  if (tile.kind != Tile::skip) {
    load_tile<typename Tiles::Q>(q_tile, 0, {0, rows.rows()},
                                 [&](int row, int ahead) { return rows.q_row(row, ahead); });
    load_k(tile);
    commit_copies<Config::kAligned>();
  }
  while (tile.kind != Tile::skip) {
    wait_copies<Config::kAligned, 0>();
    __syncthreads();  // K is there, and no warp reads the last V any more
    load_tile<typename Tiles::V>(v_tile, tile.first, range,
                                 [&](int kv, int ahead) { return rows.v_row(kv, ahead); });
    commit_copies<Config::kAligned>();
    Fragment<typename Tiles::ScoreMap> scores;
    multiply_qk<Element, typename Tiles::Q::Layout, typename Tiles::K::Layout>(
        scores, q_tile, k_tile, warp_row, sign);
    const KvTile next = walk.next();

    wait_copies<Config::kAligned, 0>();
    __syncthreads();  // V is there, and no warp reads this K any more
    if (next.kind != Tile::skip) {
      load_k(next);
      commit_copies<Config::kAligned>();
    }
    if constexpr (Variant::kTransformsLogits) {
      transform_logits(scores, variant, rows, warp_row, tile.first, size);
    }
    // One loop with a branch: two loops, with and without mask, compile 40 % longer.
    if (tile.kind == Tile::partial) {
      mask_scores(scores, variant, rows, warp_row, tile.first, range);
    }
    softmax.step(scores, out, exponent_scale);
    multiply_pv<Element, typename Tiles::V::Layout>(out, scores, v_tile);
    tile = next;
  }
  softmax.finish();
  store_rows<Config>(out, softmax, variant, rows, warp_row);
}

template <class Config, class Variant>
__device__ __forceinline__ void flash_attention(const AttentionArgs<Variant>& args) {
  static_assert(sizeof(AttentionArgs<Variant>) == sizeof(AttentionParams) + Variant::kBytes,
                "flash_attention: a variant may hold only Slots and VariantTensors");
  const DenseAddressing<Config> addressing(args.params());
  TileIterator<Config::kBlockKv, Variant> walk(args.variant(), addressing.tile_rows());
  attend<Config>(args.params().scale, args.variant(), addressing, walk);
}

}  // namespace kiln
