// Attention forward for Hopper: a persistent, warp-specialised kernel (sm_90a).
//
//   the warpgroup behind them                       math warpgroups, 64 queries each
//   -------------------------                       --------------------------------
//   scheduler warp: which tiles of keys are seen
//        |  walk                                    for each query tile
//   copying warps: Q; K and V of these tiles --ring-->  S = Q K^T, softmax, O += P V  (wgmma)
//                                                      O to global memory
//
// With a quantised cache another warpgroup copies its keys and widens them, see convert.cuh. With
// bytes as queries too, two warps transpose the values, see transpose.cuh.
//
// Variants, masks, softmax and row factors are those of the portable kernel: the accumulators of
// wgmma and mma.sync have the same layout.
#pragma once
#include "/kiln/attention/builtin_variants.cuh"
#include "/kiln/attention/sm90/combine.cuh"
#include "/kiln/attention/sm90/combine_rows.cuh"
#include "/kiln/attention/sm90/convert.cuh"
#include "/kiln/attention/sm90/gather.cuh"
#include "/kiln/attention/sm90/main_loop.cuh"
#include "/kiln/attention/sm90/scaled_queries.cuh"
#include "/kiln/attention/sm90/store.cuh"
#include "/kiln/attention/sm90/transpose.cuh"
#include "/kiln/base/launches.cuh"

namespace kiln {

// With two stages of Q, the first product of a query tile is started before the rows of the tile
// before it are written. With one, Q of the next tile arrives meanwhile.
template <class Config, class Args>
__device__ __forceinline__ void compute_query_tiles(const Args& args, int group) {
  using Variant = typename Args::Variant;
  using Tile = typename Config::Storage::Tile;
  using Shape = AttentionSm90Shape<Config>;
  using Loop = KeyLoop<Config, Args>;
  constexpr bool kBeginsEarly = Config::kQStages > 1 && !Config::kSplits;
  const typename Tile::Params& params = args.call.params();
  const Variant& variant = args.call.variant();
  const int warp_row = group * 64 + threadIdx.x % 128 / 32 * 16;
  const auto q_ring = Shape::q_ring();
  typename Loop::Walk walk(group);
  Loop loop(args, group);
  // Rounded before the next product is started: ptxas lets no code read registers that a product
  // has defined while another one is under way.
  RoundedRows<typename Shape::OutMap> rows;
  typename Tile::Place place;  // of these rows
  const auto store = [&] {
    if constexpr (Config::kStagedOutput) {
      store_staged<Config>(args.out, Tile(params, place), rows, warp_row,
                           Shape::base() + Shape::kOutAt + warp_row * 128);
    } else {
      store_direct<Config>(Tile(params, place), rows, warp_row);
    }
    // The warp meets again before the next round: otherwise ptxas takes the whole loop for
    // divergent and keeps addresses and descriptors out of uniform registers, 6 % of the speed.
    __syncwarp();
  };
  typename Loop::Softmax softmax;
  typename Loop::Out out;
  const auto is_later_split = [](const Tile& tile) {
    if constexpr (Config::kSplits) return tile.split() > 0;
    return false;
  };
  const auto start = [&](const Tile& tile, u32 q_stage) {
    loop.begin(tile, q_stage);
    softmax.start([&](int r) {
      RowSum sum{-KILN_INFINITY, 0.0f};
      if constexpr (Variant::kStartsRows) {
        if (!is_later_split(tile)) {
          variant.row_init(sum, tile.position(warp_row + Shape::ScoreMap::row(r), 0));
        }
      }
      return sum;
    });
    // Products are always added: were the first to replace `out`, ptxas would keep two copies of it
    // for a query tile without keys, in local memory.
    out.clear();
  };
  constexpr bool kJoinsRows =
      Config::kSplits &&
      (Config::kGroups == 3 || (Config::kHeadDimV > 64 && Variant::kTransformsLogits) ||
       (Config::kHeadDimV > 128 && (!Config::Storage::kHasShares || Shape::Keys::kQuantized)));
  // Says whether the warp has nothing to join: all its rows lie behind those of the tile.
  const auto is_idle = [&](const Tile& tile) {
    if constexpr (!Config::kSplits) return false;
    return !__any_sync(~0u, tile.has_row(warp_row));
  };
  const auto finish = [&](const Tile& tile) {
    if constexpr (Variant::kTakesMaxima) settle(softmax, out);
    softmax.finish([](auto&) {});
    if (is_idle(tile)) return;
    if constexpr (kJoinsRows) {
      if (tile.is_split()) return write_partial_rows<Config>(tile, softmax, out, warp_row);
    } else if constexpr (Config::kSplits) {
      if (tile.is_split() && !join_splits<Config>(tile, softmax, out, warp_row)) return;
    }
    float value_scale = 1.0f;
    if constexpr (Config::kHasScales) value_scale = tile.value_scale();
    rows =
        finish_rows<typename Config::Element>(variant, tile, softmax, out, value_scale, warp_row);
    place = tile;
    // Kept until the other splits are joined, the rows would spill.
    if constexpr (Config::kSplits) store_direct<Config>(tile, rows, warp_row);
  };
  // A second copy of join_splits() is a sixth of what the compiler does. Other kernels, and those
  // of quantised keys, spill with one copy of finish().
  constexpr bool kEndsInOnePlace = Config::kSplits && !kJoinsRows && !Shape::Keys::kQuantized;
  // The warp meets at the end of both branches, as in store(): ptxas takes the loop for divergent
  // if it only meets behind them.
  const auto end_branch = [&](const Tile& tile) {
    if constexpr (!kEndsInOnePlace) finish(tile);
    if constexpr (Config::kSplits) __syncwarp();
  };
#pragma unroll 1
  for (u32 tiles = 0;; ++tiles) {
    const bool stores = kBeginsEarly && tiles > 0;
    const bool has_tile = walk.next_query_tile();
    const Tile tile(params, walk.place());
    const auto q_at = q_ring.consumer_after(tiles);
    const typename Loop::Queries q{Shape::q(q_at.stage) + group * 64 * 128,
                                   Shape::growth(q_at.stage)};
    const auto release_q = [&] { release(q_ring.empty(q_at.stage)); };
    if (has_tile) wait_as_warp(q_ring.full(q_at.stage), q_at.parity);
    // No path without a product may join one with a product under way: ptxas would then wait for
    // each product at once.
    if (!has_tile || !loop.seek_first(walk)) {
      if (stores) store();
      if (!has_tile) break;
      start(tile, q_at.stage);
      release_q();
      end_branch(tile);
    } else {
      loop.start_scores(q);
      if (stores) store();
      start(tile, q_at.stage);
      loop.attend(walk, tile, q, softmax, out, release_q);
      end_branch(tile);
    }
    if constexpr (kEndsInOnePlace) finish(tile);
    if constexpr (Config::kSplits) {
      if constexpr (kJoinsRows) {
        if (tile.is_split() && !is_idle(tile)) join_rows<Config>(variant, tile, warp_row);
      }
      __syncwarp();  // as in store()
    } else if constexpr (!kBeginsEarly) {
      store();
    }
  }
  // The copy engine still reads this CTA's shared memory.
  if (Config::kStagedOutput && threadIdx.x % 32 == 0) wait_stores_read<0>();
}

// Whether warps gather the keys and values: the copy engine does not copy boxes of few rows.
template <class Config, class Args>
__device__ __forceinline__ bool gathers_keys(const Args& args) {
  if constexpr (AttentionSm90Shape<Config>::kCopiesPages) return args.call.params().box_rows == 0;
  return false;
}

// Registers of each thread of a math warpgroup, of the warpgroup that converts, and of the others.
struct RoleRegisters {
  int math, converting, others;
};

// A launch's threads have at most 64k registers, and no more than they are launched with can be
// dealt out: for each of 128 threads 512 with three math warpgroups or with two and one that
// converts, 504 with two, and 480 with three and one that converts, which are 640 threads of 96.
template <class Config, class Variant>
__device__ __forceinline__ constexpr RoleRegisters role_registers() {
  using Shape = AttentionSm90Shape<Config>;
  constexpr bool kHasThree = Shape::kGroups == 3;
  if (kHasThree && Shape::kConverts) return {136, 40, 32};
  // Narrow tiles of keys leave the scheduler warp registers for masks that read tensors, and for
  // shares.
  constexpr int kNarrow = Config::Storage::kHasShares ? 96 : 64;
  if (kHasThree)
    return Shape::kBlockKv <= kNarrow ? RoleRegisters{152, 0, 56} : RoleRegisters{160, 0, 32};
  if (!Shape::kConverts) return {232, 0, 40};
  // Wide values and a user's code leave none for more reads at a time.
  constexpr bool kReadsAhead =
      Config::kHeadDimV <= 128 && !Variant::kTransformsLogits && !Variant::kKeeps;
  return kReadsAhead ? RoleRegisters{200, 64, 48} : RoleRegisters{208, 48, 48};
}

template <class Config, class Args>
__device__ __forceinline__ void flash_attention_sm90(const Args& args) {
  using Shape = AttentionSm90Shape<Config>;
  // The shuffle makes `warp` uniform to the compiler, which cannot infer it from the index.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
  constexpr int kGroups = Shape::kGroups;
  const bool gathers = gathers_keys<Config>(args);
  if (threadIdx.x == 0) {
    // Decoding of the same call may begin, see varlen/flash_attention.cuh. This launch is an
    // ordinary one: all before it have ended.
    if constexpr (Config::Storage::kPrecedesOthers) let_dependents_begin();
    Shape::init_barriers(gathers);
    fence_barrier_init();
  }
  if constexpr (Config::kTilts) write_places<Config>();
  __syncthreads();
  constexpr RoleRegisters kRegisters = role_registers<Config, typename Args::Variant>();
  if (Shape::kConverts && group > kGroups) {
    give_registers<kRegisters.converting>();
    if constexpr (Shape::kConverts) {
      // A read takes four registers until it is written.
      constexpr u32 kBatch = kRegisters.converting >= 64 ? 4 : 2;
      convert_keys<Config, kBatch>(args, warp - (kGroups + 1) * 4);
    }
  } else if (group == kGroups) {
    give_registers<kRegisters.others>();
    const int role = warp - kGroups * 4;
    if (role == 1) {
      publish_walk<Config>(args);
    } else if constexpr (Shape::kConverts) {
      if (role == 0) {
        load_queries<Config>(args);
      } else if constexpr (Shape::kScalesQueries) {
        scale_queries<Config>(args, role - 2);
      }
    } else if constexpr (Shape::kCopiesPages) {
      if (gathers) {
        if (role == 0) {
          announce_gathered<Config>(args);
        } else {
          gather_tiles<Config>(args, role - 2);
        }
      } else if constexpr (Shape::kSlabs == Shape::kSlabsV) {
        if (role != 3) load_pages<Config, Args, Shape::kSlabs>(args, role == 2);
      } else if (role == 0) {
        load_pages<Config, Args, Shape::kSlabs>(args, false);
      } else if (role == 2) {
        load_pages<Config, Args, Shape::kSlabsV>(args, true);
      }
    } else if (role == 0) {
      load_tiles<Config>(args);
    } else if constexpr (Shape::kMultipliesBytes) {
      transpose_values<Config>(role - 2);
    }
  } else {
    if constexpr (kGroups > 1) take_registers<kRegisters.math>();
    compute_query_tiles<Config>(args, group);
  }
}

}  // namespace kiln
