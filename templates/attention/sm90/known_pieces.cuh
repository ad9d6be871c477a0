// Selects the pieces of query tiles that a CTA computes where it finds them without a look at all
// lengths: QueryTiles' interface.
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
#include "/kiln/attention/sm90/shape.cuh"

namespace kiln {

template <class Config, class Variant>
class KnownPieces {
  using WholeTile = typename Config::Storage::WholeTile;
  static constexpr int kBlockQ = AttentionSm90Shape<Config>::kBlockQ;
  static constexpr int kBlockKv = AttentionSm90Shape<Config>::kBlockKv;
  static constexpr u32 kLeast = ceil_div(kAttentionLeastAloneKeys, kBlockKv);

 public:
  static constexpr bool kDraws = false;

  // Says whether they are known of the call.
  __device__ __forceinline__ static bool serves(const AttentionVarlenParams& p) {
    return p.alone.by != 0 || (p.plan != nullptr && has_planned_pieces(p));
  }
  __device__ __forceinline__ KnownPieces(const AttentionVarlenParams& params,
                                         const Variant& variant)
      : p_(params), variant_(variant) {}

  // Takes the next piece; false after the last.
  __device__ __forceinline__ bool has_tile() {
    return p_.alone.by != 0 ? take_of_one_sequence()
                            : load_planned_piece(p_, taken_before_, taken_);
  }
  // Requires: has_tile() has returned true.
  __device__ __forceinline__ const SequencePiece& tile() const { return taken_; }
  __device__ __forceinline__ void advance() {
    at_ += gridDim.x;
    ++taken_before_;
  }

 private:
  __device__ __forceinline__ bool take_of_one_sequence() {
    const Sequence s = sequence_at(p_, 0);
#pragma unroll 1
    for (;; at_ += gridDim.x) {
      const u32 whole = static_cast<u32>(p_.alone_whole), most = p_.alone.by;
      const u32 cut = at_ - min(at_, whole), of_rest = quotient(cut, p_.alone);
      const u32 item = min(at_, whole) + of_rest, tile = item / columns_.count();
      const u32 column = item - tile * columns_.count();
      static_cast<SequencePlace&>(taken_) = columns_.place(s, column, tile, kBlockQ);
      if (taken_.first_row >= s.len_q) return false;
      const u32 piece = cut - of_rest * most;
      const u32 steps = steps_of_keys(variant_, WholeTile(p_, taken_), kBlockQ, kBlockKv);
      u32 longest = max(static_cast<u32>(quotient(steps + most - 1, p_.alone)), kLeast);
      // Partial results of more pieces are joined in two rounds, which take as long as two steps.
      const u32 of_eight = ceil_div(steps, kMostJoinedAtOnce);
      if (of_eight <= longest + 2) longest = max(longest, of_eight);
      // The bound that the host was told may be too low: tiles behind it are cut only where all of
      // their pieces have CTAs, of which there is one round.
      if (at_ < whole || of_rest * most + most > gridDim.x) longest = max(steps, 1u);
      taken_.piece = static_cast<int>(piece);
      taken_.pieces = max(static_cast<int>(ceil_div(steps, longest)), 1);
      taken_.first_cta = of_rest * most;
      taken_.steps = {static_cast<int>(min(piece * longest, steps)),
                      static_cast<int>(min((piece + 1) * longest, steps))};
      if (taken_.piece < taken_.pieces) return true;
    }
  }

  const AttentionVarlenParams& p_;
  TileColumns<WholeTile> columns_{p_};
  const Variant& variant_;
  // Counts whole tiles, then pieces of the others, as if each had as many as the host allows.
  u32 at_ = blockIdx.x;
  u32 taken_before_ = 0;
  SequencePiece taken_;
};

}  // namespace kiln
