// Selects the pieces of query tiles that a CTA computes where it finds them without a look at all
// lengths.
//
// Where a call has a plan, that lists them, see plan_shares.cuh.
//
// Where it has one sequence, the host has found into how many pieces a tile is cut at most. If
// tiles are more than CTAs, each CTA has as many whole ones as all can have, and a piece of the
// rest:
//
//   tile         0   1   2   3   4   5   6   7   8       9
//   CTA          0   1   2   3   0   1   2   3   0  |1   2  |3
//
// so that CTAs read the same keys at the same time.
//
// Few instructions lead to the first tile: most of a short call's come before it, from memory that
// no multiprocessor has read yet. sequence_shares.cuh takes 13 000 cycles.
#pragma once
#include "/kiln/attention/sm90/planned_piece.cuh"
#include "/kiln/attention/sm90/sequence_tile.cuh"

namespace kiln {

// All functions are called by the scheduler warp. TileSize is that of sequence_shares.cuh.
template <class TileSize, class Variant>
class KnownPieces : TileSize {
  using WholeTile = GroupedTile;
  using TileSize::keep;
  using TileSize::kept;
  static constexpr int kBlockQ = TileSize::block_q(), kBlockKv = TileSize::block_kv();
  static constexpr u32 kLeast = ceil_div(kAttentionLeastAloneKeys, kBlockKv);

 public:
  __device__ __forceinline__ KnownPieces(const AttentionVarlenParams& params,
                                         const Variant& variant)
      : p_(params), variant_(variant) {
    keep(KeptWord::next, p_.alone.by != 0 ? blockIdx.x : 0);
  }

  // Says whether they are known of the call. The answer, which is that of the last time, costs no
  // register.
  __device__ __forceinline__ bool serves() const {
    return p_.alone.by != 0 || (p_.plan != nullptr && has_planned_pieces(p_));
  }
  // Takes the next piece; false after the last.
  __device__ __forceinline__ bool take(SequencePiece& piece) {
    if (p_.alone.by != 0) return take_of_one_sequence(piece);
    const u32 taken_before = kept(KeptWord::next);
    keep(KeptWord::next, taken_before + 1);
    return load_planned_piece(p_, taken_before, piece);
  }

 private:
  // The word that is kept counts whole tiles, then pieces of the others, as if each of these had as
  // many as the host allows.
  __device__ __forceinline__ bool take_of_one_sequence(SequencePiece& taken) {
    const Sequence s = sequence_at(p_, 0);
#pragma unroll 1
    for (u32 at = kept(KeptWord::next);; at += gridDim.x) {
      const u32 whole = static_cast<u32>(p_.alone_whole), most = p_.alone.by;
      const u32 cut = at - min(at, whole), of_rest = quotient(cut, p_.alone);
      const u32 item = min(at, whole) + of_rest, tile = item / columns_.count();
      const u32 column = item - tile * columns_.count();
      static_cast<SequencePlace&>(taken) = columns_.place(s, column, tile, kBlockQ);
      if (taken.first_row >= s.len_q) return false;
      const u32 piece = cut - of_rest * most;
      const u32 steps = steps_of_keys(variant_, WholeTile(p_, taken), kBlockQ, kBlockKv);
      u32 longest = max(static_cast<u32>(quotient(steps + most - 1, p_.alone)), kLeast);
      // Partial results of more pieces are joined in two rounds, which take as long as two steps.
      const u32 of_eight = ceil_div(steps, kMostJoinedAtOnce);
      if (of_eight <= longest + 2) longest = max(longest, of_eight);
      // The bound that the host was told may be too low: tiles behind it are cut only where all of
      // their pieces have CTAs, of which there is one round.
      if (at < whole || of_rest * most + most > gridDim.x) longest = max(steps, 1u);
      taken.piece = static_cast<int>(piece);
      taken.pieces = max(static_cast<int>(ceil_div(steps, longest)), 1);
      taken.first_cta = of_rest * most;
      taken.steps = {static_cast<int>(min(piece * longest, steps)),
                     static_cast<int>(min((piece + 1) * longest, steps))};
      if (taken.piece < taken.pieces) {
        keep(KeptWord::next, at + gridDim.x);
        return true;
      }
    }
  }

  const AttentionVarlenParams& p_;
  TileColumns<WholeTile> columns_{p_};
  const Variant& variant_;
};

}  // namespace kiln
