// Attention forward over sequences that have lengths of their own, with keys in rows or in pages:
// prefill and decode of a serving engine, on tensor cores with mma.sync (sm_80 and later).
//
//   work.cuh        deals query tiles and their keys to CTAs, by lengths in device memory
//   addressing.cuh  finds the rows of a piece
//   spread.cuh      tells variants where keys are that other devices have, too
//   attend()        is the main loop of ../flash_attention.cuh
//   combine.cuh     joins teams and, through the workspace, CTAs
//
// A CTA computes its pieces one after the other.
//
// Config::kOverlaps, from sm_90 on: where another launch of the same call computes the sequences of
// many rows, this one is a programmatic dependent launch after it. Neither needs what the other
// writes, and they have parts of the workspace of their own, so that this one waits before it ends
// and not earlier. An sm_90a kernel lets it begin at once. After a kernel of mma.sync, which does
// not, CTAs start when those of the first launch have ended, and only the set-up overlaps.
#pragma once
#include "/kiln/attention/flash_attention.cuh"
#include "/kiln/attention/varlen/addressing.cuh"
#include "/kiln/attention/varlen/sequences.cuh"
#include "/kiln/attention/varlen/spread.cuh"
#include "/kiln/attention/varlen/work.cuh"
#include "/kiln/base/launches.cuh"

namespace kiln {

// The slots of a query tile's partial results: a CTA has two, and a tile that begins in CTA c gets
// those from 2 c + 1 on, one for each of its pieces. Its last piece is CTA c + pieces - 1's, which
// begins the next tile, so that no slot is used twice.
template <class Config>
__device__ __forceinline__ PartialPlace partial_place(const AttentionVarlenParams& params,
                                                      const Piece& piece) {
  constexpr int kTileFloats = attention_partial_floats(Config::kBlockQ, Config::kHeadDimV);
  u8* const workspace = static_cast<u8*>(params.call.workspace);
  const i64 slot = 2 * static_cast<i64>(piece.first_cta) + 1;
  return {
      reinterpret_cast<u64*>(workspace) + slot,
      reinterpret_cast<float*>(workspace + attention_flag_bytes(gridDim.x, 2)) + slot * kTileFloats,
      static_cast<int>(piece.index), static_cast<int>(piece.pieces)};
}

// Returns what attend() multiplies logits by. The factors of a quantised cache are read before its
// keys, and needed after these have been asked for.
template <class Config>
__device__ __forceinline__ auto call_scale(const VarlenAddressing<Config>& rows, float scale) {
  if constexpr (KeysOf<Config>::kQuantized) {
    return rows.logit_scale(scale);
  } else {
    return scale;
  }
}

template <class Config, class Variant>
__device__ __forceinline__ void compute_sequences(const AttentionVarlenParams& params,
                                                  const Variant& variant) {
  using Tiles = AttentionTiles<Config>;
  static_assert(Config::kSplits && Config::kPacked,
                "flash_attention_varlen: tiles hold all heads of a KV head, and CTAs share keys");
  extern __shared__ __align__(128) u8 shared_memory[];
  const WarpPlace<Tiles> place;
  Work<Config, Variant> work(params, variant);
  Piece piece;
#pragma unroll 1
  while (work.next(piece)) {
    const VarlenAddressing<Config> rows(params, piece);
    OnlineSoftmax<typename Tiles::ScoreMap, (Tiles::kPartners > 1), false, Variant::kTakesMaxima>
        softmax;
    softmax.start([&](int r) {
      RowSum sum{-KILN_INFINITY, 0.0f};
      if constexpr (Variant::kStartsRows) {
        if (place.team == 0 && place.partner == 0 && piece.index == 0) {
          variant.row_init(sum, rows.position(place.row + Tiles::ScoreMap::row(r), 0));
        }
      }
      return sum;
    });
    Fragment<typename Tiles::OutMap> out;
    out.clear();
    attend<Config>(
        shared_memory, place, call_scale<Config>(rows, params.call.scale), variant, rows,
        TileIterator<Config::kBlockKv, Config::kTeams, Variant>(
            variant, rows.template tile_rows<true>(0, Config::kBlockQ), piece.steps, place.team),
        softmax, out);
    combine_rows<Config>(
        shared_memory, out, softmax, piece.pieces > 1, params.call.nonce,
        [&] { return partial_place<Config>(params, piece); }, variant, rows, place);
    __syncthreads();  // the next piece's queries take the place of the partial results
  }
}

template <class Config, class Variant>
__device__ __forceinline__ void flash_attention_varlen(const AttentionVarlenArgs<Variant>& args) {
  const AttentionVarlenParams& params = args.params();
  if constexpr (Config::kSpread) {
    compute_sequences<Config>(params, SpreadVariant<Variant>(args.variant(), params.spread));
  } else {
    compute_sequences<Config>(params, args.variant());
  }
  wait_for_launches<Config::kOverlaps>();
}

}  // namespace kiln
