// Attention forward on tensor cores with mma.sync (sm_80 and later). One CTA computes a tile of
// queries of one head, or of all heads that share a KV head, and walks over tiles of keys with the
// online softmax.
//
// Shared memory holds rows in SwizzledRows without padding; each team of warps has its own ring:
//
//   | Q: kBlockQ x dim | kTeams times kStages times (K: kBlockKv x dim | V: kBlockKv x dim_v) |
//
//   tile j     arrived | S = Q K^T, softmax, O += P V
//   loading            | tiles j + 1 .. j + kStages - 1, the last in the place of tile j - 1
//
// kStages is 1 where a second stage would leave no room for a second CTA on the multiprocessor:
//
//   tile j   K arrived | S = Q K^T            | softmax, O += P V
//   loading            | V of tile j          | K of tile j + 1
//
// With one team, the warps split the queries. With kTeams teams, each team, of one warp mostly,
// holds all queries and takes every kTeams-th tile of keys, without synchronising with the others
// until the end, so few queries still keep many loads in flight. kSplits also lets several CTAs
// share the keys.
#pragma once
#include "/kiln/attention/addressing.cuh"
#include "/kiln/attention/arguments.cuh"
#include "/kiln/attention/builtin_variants.cuh"
#include "/kiln/attention/cache.cuh"
#include "/kiln/attention/cache_products.cuh"
#include "/kiln/attention/combine.cuh"
#include "/kiln/attention/load.cuh"
#include "/kiln/attention/mask.cuh"
#include "/kiln/attention/params.h"
#include "/kiln/attention/partners.cuh"
#include "/kiln/attention/products.cuh"
#include "/kiln/attention/softmax.cuh"
#include "/kiln/attention/store.cuh"
#include "/kiln/attention/tiles.cuh"
#include "/kiln/base/barriers.cuh"

namespace kiln {

template <class Config>
struct AttentionTiles {
  static_assert(is_same<typename Config::Element, f16> || is_same<typename Config::Element, bf16>,
                "flash_attention: Element must be kiln::f16 or kiln::bf16");
  static_assert(Config::kHeadDim % 8 == 0 && Config::kHeadDim >= 8 && Config::kHeadDim <= 512,
                "flash_attention: kHeadDim must be a multiple of 8, 8 to 512");
  static_assert(Config::kHeadDimV % 8 == 0 && Config::kHeadDimV >= 8 && Config::kHeadDimV <= 512,
                "flash_attention: kHeadDimV must be a multiple of 8, 8 to 512");
  static_assert(Config::kBlockKv % 16 == 0 && Config::kBlockKv >= 16,
                "flash_attention: kBlockKv must be a multiple of 16");
  static_assert(Config::kWarps % Config::kTeams == 0,
                "flash_attention: kTeams must divide kWarps into teams of equally many");
  static_assert(Config::kTeams == 1 || Config::kSplits,
                "flash_attention: several teams need the combining epilogue of kSplits");
  static_assert(Config::kStages >= 1, "flash_attention: kStages must be 1 or more");

  static constexpr int kThreads = Config::kWarps * 32;
  static constexpr int kTeamWarps = Config::kWarps / Config::kTeams;
  static constexpr int kTeamThreads = kTeamWarps * 32;
  static constexpr int kPartners = Config::kPartners;
  static constexpr int kRows = Config::kBlockQ;
  static constexpr int kWarpRows = kRows * kPartners / kTeamWarps;
  static_assert(kWarpRows * kTeamWarps == kRows * kPartners && (kWarpRows == 16 || kWarpRows == 32),
                "flash_attention: kBlockQ must be 16 or 32 rows for each group of kPartners warps");
  static_assert(kPartners == 1 || Config::kTeams == 1,
                "flash_attention: partners share rows within one team");
  using Keys = KeysOf<Config>;
  static_assert(!Keys::kQuantized || Config::kSplits,
                "flash_attention: kernels of a quantised cache have the epilogue of kSplits");
  static constexpr int kKeyBytes = sizeof(typename Keys::Element);

  using Q = TileShape<Config::kBlockQ, Config::kHeadDim, kThreads, Config::kAligned>;
  using K =
      TileShape<Config::kBlockKv, Config::kHeadDim, kTeamThreads, Config::kAligned, kKeyBytes>;
  using V =
      TileShape<Config::kBlockKv, Config::kHeadDimV, kTeamThreads, Config::kAligned, kKeyBytes>;
  static constexpr int kWarpKeys = Config::kBlockKv / kPartners;
  static constexpr int kWarpColumns = V::kChunks * V::kPerChunk / kPartners;
  static_assert(kPartners == 1 || (kWarpKeys % 16 == 0 && kWarpColumns % 64 == 0),
                "flash_attention: partners need 16 keys and 64 columns each, or multiples");
  // Each writes all of its columns.
  static_assert(
      kPartners == 1 || kWarpColumns * kPartners == Config::kHeadDimV,
      "flash_attention: partners have no columns of padding: kHeadDimV must be a multiple "
      "of 64 for each");
  using ScoreMap = FragMap<kWarpRows / 16, kWarpKeys / 8>;
  using OutMap = conditional<Keys::kQuantized, AlternatingFragMap<kWarpRows / 16, kWarpColumns / 8>,
                             FragMap<kWarpRows / 16, kWarpColumns / 8>>;
  using Weights =
      SwizzledRows<Config::kBlockKv / 8>;  // a tile's weights, exchanged between partners

  static constexpr u32 kStageBytes = K::kBytes + V::kBytes;
  static constexpr u32 kRingBytes = Config::kStages * kStageBytes;
  static constexpr u32 kWeightsOffset = Q::kBytes + Config::kTeams * kRingBytes;
  static constexpr u32 kScratchOffset =
      kWeightsOffset + (kPartners > 1 ? kRows * Weights::kRowBytes : 0);
  static constexpr u32 kFactorsOffset =
      kScratchOffset + (kPartners > 1 ? kPartners * kRows * 4 : 0);
  static_assert(kFactorsOffset + (Keys::kQuantized ? kRows * 4 : 0) <=
                    attention_shared_bytes(Config::kHeadDim, Config::kHeadDimV, Config::kBlockQ,
                                           Config::kBlockKv, Config::kStages, Config::kTeams,
                                           kPartners, Config::kSplits,
                                           sizeof(typename Config::Element), kKeyBytes),
                "flash_attention: the tiles must fit what attention_shared_bytes() asks for");
};

// Makes what each thread of a team has waited for visible to the whole team.
template <class Config>
__device__ __forceinline__ void sync_team() {
  constexpr int kThreads = Config::kWarps / Config::kTeams * 32;
  if constexpr (Config::kTeams == 1) {
    __syncthreads();
  } else if constexpr (kThreads == 32) {
    __syncwarp();
  } else {
    sync_threads<kThreads>(1 + threadIdx.x / kThreads);
  }
}

// Starts to load Q; returns what settle_queries() then needs.
template <class Config, class Addressing>
__device__ __forceinline__ auto ask_queries(u8* shared_memory, const Addressing& rows) {
  using Tiles = AttentionTiles<Config>;
  if constexpr (Tiles::Keys::kQuantized) {
    return CacheQueries<Config, decltype(rows.q_rows())>(rows.q_rows(), rows.rows());
  } else {
    load_tile<typename Tiles::Q>(shared_address(shared_memory), 0, {0, rows.rows()}, threadIdx.x,
                                 rows.q_rows());
    commit_copies<Config::kAligned>();
    return 0;
  }
}

// Waits for Q where the main loop will not. Q takes the sign of the scale. Returns its magnitude,
// by which scores are multiplied: in the exponent, if no hook sees the logits.
template <class Config, int kAhead, class Place, class Scale, class Queries>
__device__ __forceinline__ auto settle_queries(u8* shared_memory, const Place& place,
                                               const Scale& given, Queries& queries) {
  using Tiles = AttentionTiles<Config>;
  const float scale = static_cast<float>(given);
  if constexpr (Tiles::Keys::kQuantized) {
    float* const factors = reinterpret_cast<float*>(shared_memory + Tiles::kFactorsOffset);
    queries.template store<typename Tiles::Q::Layout>(shared_memory, factors,
                                                      scale < 0.0f ? -1.0f : 1.0f);
    __syncthreads();
    return row_scales<typename Tiles::ScoreMap>(factors + place.row, fabsf(scale));
  } else {
    if (Config::kTeams > 1 || scale < 0.0f) {
      wait_copies<Config::kAligned, kAhead>();
      __syncthreads();  // all teams have loaded their part of Q
      if (scale < 0.0f) {
        negate_tile<typename Tiles::Q>(shared_memory, threadIdx.x);
        if constexpr (Config::kTeams > 1) __syncthreads();  // one team synchronises in the loop
      }
    }
    return fabsf(scale);
  }
}

// The main loop, generic over the variant, the addressing and the walk over the keys.
// `scale` becomes a float once the first tiles have been asked for.
template <class Config, class Place, class Scale, class Variant, class Addressing, class Walk,
          class Softmax, class Out>
__device__ __forceinline__ void attend(u8* shared_memory, const Place& place, const Scale& scale,
                                       const Variant& variant, const Addressing& rows, Walk walk,
                                       Softmax& softmax, Out& out) {
  using Tiles = AttentionTiles<Config>;
  using Element = typename Config::Element;
  constexpr int kStages = Config::kStages;
  constexpr int kAhead = kStages == 1 ? 1 : kStages - 1;  // tiles in flight, with the current one
  const u32 q_tile = shared_address(shared_memory);
  const u32 ring = q_tile + Tiles::Q::kBytes + place.team * Tiles::kRingBytes;
  const Partners<Tiles> partners{place,
                                 reinterpret_cast<float*>(shared_memory + Tiles::kScratchOffset)};
  const TileRows warp_rows = rows.template tile_rows<Variant::kKeeps>(place.row, Tiles::kWarpRows);
  const Range range = walk.range();
  const auto load_k = [&](int kv, u32 stage) {
    if (kv == Walk::kEnd) return;
    load_tile<typename Tiles::K>(ring + stage, kv, range, place.thread, rows.k_rows());
  };
  const auto load_v = [&](int kv, u32 stage) {
    if (kv == Walk::kEnd) return;
    load_tile<typename Tiles::V>(ring + stage + Tiles::K::kBytes, kv, range, place.thread,
                                 rows.v_rows());
  };

  using Keys = typename Tiles::Keys;
  auto queries = ask_queries<Config>(shared_memory, rows);
  int tiles[kAhead + 1];  // first keys: tiles[0] is the current tile, the others are in flight
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    tiles[i] = walk.next();
    load_k(tiles[i], i * Tiles::kStageBytes);
    if (kStages > 1) load_v(tiles[i], i * Tiles::kStageBytes);
    commit_copies<Config::kAligned>();
  }
  const auto sizes = settle_queries<Config, kAhead>(shared_memory, place, scale, queries);
  const auto exponent_scale = exponent_scales<Variant::kTransformsLogits>(sizes, 1.0f);
  u32 read = 0;
  while (tiles[0] != Walk::kEnd) {
    wait_copies<Config::kAligned, kAhead - 1>();
    sync_team<Config>();  // this tile has arrived, and no warp still reads the previous one
    if constexpr (kStages == 1) {
      load_v(tiles[0], 0);
    } else {
      tiles[kAhead] = walk.next();
      const u32 last = (read == 0 ? Tiles::kRingBytes : read) - Tiles::kStageBytes;
      load_k(tiles[kAhead], last);
      load_v(tiles[kAhead], last);
    }
    commit_copies<Config::kAligned>();
    // A warp computes only the tiles that its own rows see.
    const Tile kind = walk.kind(tiles[0], warp_rows);
    Fragment<typename Tiles::ScoreMap> scores;
    if (kind != Tile::skip) {
      const u32 k_tile = ring + read + place.key() * Tiles::K::Layout::kRowBytes;
      if constexpr (Keys::kQuantized) {
        multiply_qk_bytes<Keys, typename Tiles::Q::Layout, typename Tiles::K::Layout>(
            scores, q_tile, k_tile, place.row);
      } else {
        multiply_qk<Element, typename Tiles::Q::Layout, typename Tiles::K::Layout>(
            scores, q_tile, k_tile, place.row);
      }
    }
    if constexpr (kStages == 1) {
      tiles[kAhead] = walk.next();
      wait_copies<Config::kAligned, 0>();
      sync_team<Config>();  // V has arrived, and no warp still reads this K
      load_k(tiles[kAhead], 0);
      commit_copies<Config::kAligned>();
    }
    if (kind != Tile::skip) {
      if constexpr (Variant::kTransformsLogits) {
        const float all = multiply_rows(scores, sizes);
        // With the variant's last factor, for which the exponent's scale would take a register.
        transform_logits<false>(scores, variant, rows, place.row, tiles[0] + place.key(), all);
      }
      // This is one loop with a branch: two loops, with and without mask, compile 40 % longer.
      if (kind == Tile::partial) {
        mask_scores(scores, variant, rows, place.row, tiles[0] + place.key(), range);
      }
      softmax.step(scores, out, exponent_scale, [&](auto& maximum) {
        partners.template join<typename Tiles::ScoreMap>(
            maximum, [](float a, float b) { return fmaxf(a, b); });
      });
      const u32 v_tile = ring + read + Tiles::K::kBytes;
      using VLayout = typename Tiles::V::Layout;
      if constexpr (Tiles::kPartners == 1) {
        if constexpr (Keys::kQuantized) {
          multiply_pv_bytes<Keys, VLayout>(out, scores, v_tile);
        } else {
          multiply_pv<Element, VLayout>(out, scores, v_tile);
        }
      } else {
        using Weights = typename Tiles::Weights;
        const u32 weights = q_tile + Tiles::kWeightsOffset;
        const u32 v_columns = v_tile + place.column() / Tiles::V::kPerChunk * 16;
        store_weights<typename Keys::Product, Weights>(weights, scores, place.row, place.key());
        partners.sync();
        if constexpr (Keys::kQuantized) {
          multiply_stored_pv_bytes<Keys, Weights, VLayout, Config::kBlockKv>(out, weights,
                                                                             place.row, v_columns);
        } else {
          multiply_stored_pv<Element, Weights, VLayout, Config::kBlockKv>(out, weights, place.row,
                                                                          v_columns);
        }
      }
    }
    read = read + Tiles::kStageBytes == Tiles::kRingBytes ? 0 : read + Tiles::kStageBytes;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) tiles[i] = tiles[i + 1];
  }
  // If there was no tile, Q is still being copied to the memory that the epilogue writes.
  if constexpr (Config::kTeams == 1 && !Keys::kQuantized) {
    wait_copies<Config::kAligned, kAhead>();
  }
  if constexpr (Variant::kTakesMaxima) settle(softmax, out);
  softmax.finish([&](auto& sums) {
    partners.template join<typename Tiles::ScoreMap>(sums, [](float a, float b) { return a + b; });
  });
}

// The place of a split's partial result in the workspace.
template <class Config>
__device__ __forceinline__ PartialPlace partial_place(const AttentionParams& params,
                                                      const DenseAddressing<Config>& rows) {
  constexpr int kTileFloats = attention_partial_floats(Config::kBlockQ, Config::kHeadDimV);
  const i64 tiles = gridDim.x / static_cast<u32>(params.splits);
  u8* const workspace = static_cast<u8*>(params.workspace);
  const i64 first = static_cast<i64>(rows.tile()) * params.splits;
  return {reinterpret_cast<u64*>(workspace) + first,
          reinterpret_cast<float*>(workspace + attention_flag_bytes(tiles, params.splits)) +
              first * kTileFloats,
          rows.split(), params.splits};
}

template <class Config, class Variant>
__device__ __forceinline__ void flash_attention(const AttentionArgs<Variant>& args) {
  using Tiles = AttentionTiles<Config>;
  extern __shared__ __align__(128) u8 shared_memory[];
  const Variant& variant = args.variant();
  const AttentionParams& params = args.params();
  const DenseAddressing<Config> rows(params, blockIdx.x);
  const WarpPlace<Tiles> place;

  OnlineSoftmax<typename Tiles::ScoreMap, (Tiles::kPartners > 1), false, Variant::kTakesMaxima>
      softmax;
  softmax.start([&](int r) {
    RowSum sum{-KILN_INFINITY, 0.0f};
    if constexpr (Variant::kStartsRows) {
      if (place.team == 0 && place.partner == 0 && rows.split() == 0) {
        variant.row_init(sum, rows.position(place.row + Tiles::ScoreMap::row(r), 0));
      }
    }
    return sum;
  });
  Fragment<typename Tiles::OutMap> out;
  out.clear();
  attend<Config>(shared_memory, place, params.scale, variant, rows,
                 TileIterator<Config::kBlockKv, Config::kTeams, Variant>(
                     variant, rows.template tile_rows<true>(0, Config::kBlockQ), rows.split(),
                     Config::kSplits ? params.splits : 1, place.team),
                 softmax, out);
  // The addressing is recomputed so that the main loop need not keep it in registers.
  const DenseAddressing<Config> stored(params, opaque(blockIdx.x));
  if constexpr (Config::kSplits) {
    combine_rows<Config>(
        shared_memory, out, softmax, params.splits > 1, params.nonce,
        [&] { return partial_place<Config>(params, stored); }, variant, stored, place);
  } else {
    store_rows<Config>(shared_memory, out, softmax, variant, stored, place);
  }
}

}  // namespace kiln
