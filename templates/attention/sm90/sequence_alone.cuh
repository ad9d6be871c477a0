// Selects the piece of a query tile that a CTA computes in a call of one sequence, where the host
// has found into how many pieces a tile is cut at most: QueryTiles' interface.
//
// Few instructions lead to the first tile: most of a short call's come before it, from memory that
// no multiprocessor has read yet. sequence_shares.cuh takes 13 000 cycles.
#pragma once
#include "/kiln/attention/sm90/sequence_tile.cuh"
#include "/kiln/attention/sm90/shape.cuh"

namespace kiln {

template <class Config, class Variant>
class SequenceAlone {
  using WholeTile = typename Config::Storage::WholeTile;
  static constexpr int kBlockQ = AttentionSm90Shape<Config>::kBlockQ;
  static constexpr int kBlockKv = AttentionSm90Shape<Config>::kBlockKv;
  static constexpr u32 kLeast = ceil_div(kAttentionLeastAloneKeys, kBlockKv);

 public:
  static constexpr bool kDraws = false;

  __device__ __forceinline__ SequenceAlone(const AttentionVarlenParams& params,
                                           const Variant& variant)
      : p_(params), variant_(variant) {}

  __device__ __forceinline__ bool has_tile() {
    const u32 item = quotient(at_, p_.alone), tile = item / columns_.count();
    const u32 column = item - tile * columns_.count();
    const Sequence s = sequence_at(p_, 0);
    static_cast<SequencePlace&>(taken_) = columns_.place(s, column, tile, kBlockQ);
    if (taken_.first_row >= s.len_q) return false;
    const u32 most = p_.alone.by, piece = at_ - item * most;
    const u32 steps = steps_of_keys<kBlockQ, kBlockKv>(variant_, WholeTile(p_, taken_));
    u32 longest = max(static_cast<u32>(quotient(steps + most - 1, p_.alone)), kLeast);
    // Partial results of more pieces are joined in two rounds, which take as long as two steps.
    const u32 of_eight = ceil_div(steps, kMostJoinedAtOnce);
    if (of_eight <= longest + 2) longest = max(longest, of_eight);
    // The bound that the host was told may be too low: tiles behind it are not cut.
    if (at_ >= gridDim.x) longest = max(steps, 1u);
    taken_.piece = static_cast<int>(piece);
    taken_.pieces = max(static_cast<int>(ceil_div(steps, longest)), 1);
    taken_.first_cta = item * most;
    taken_.steps = {static_cast<int>(min(piece * longest, steps)),
                    static_cast<int>(min((piece + 1) * longest, steps))};
    return taken_.piece < taken_.pieces;
  }
  // Requires: has_tile() has returned true.
  __device__ __forceinline__ const SequencePiece& tile() const { return taken_; }
  __device__ __forceinline__ void advance() { at_ += gridDim.x; }

 private:
  const AttentionVarlenParams& p_;
  TileColumns<WholeTile> columns_{p_};
  const Variant& variant_;
  u32 at_ = blockIdx.x;  // pieces of all tiles, as if each had as many as the host allows
  SequencePiece taken_;
};

}  // namespace kiln
