// Takes the pieces of a CTA's share of the work, which deal.cuh deals. Pieces of a tile meet in the
// workspace.
#pragma once
#include "/kiln/attention/varlen/deal.cuh"
#include "/kiln/attention/varlen/divisor.cuh"

namespace kiln {

// Some or all of the keys of a query tile.
struct Piece {
  Sequence sequence;
  int h_kv, first_row;  // first_row: of all rows of the sequence that have this KV head
  Range steps;          // of keys, counted from the first that the tile sees
  // The CTAs that compute pieces of this tile, the first of them, and this one's place among them.
  u32 pieces, first_cta, index;
};

template <class Config, class Variant>
class Work : Deal<DealtTile<Config>, Variant> {
  using Base = Deal<DealtTile<Config>, Variant>;
  using Base::at_, Base::before_, Base::current_, Base::end_, Base::ends_, Base::p_, Base::share_;

 public:
  __device__ __forceinline__ Work(const AttentionVarlenParams& params, const Variant& variant)
      : Base(params, variant) {
    if constexpr (kMayBeAlone) {
      if (p_.alone.by != 0) {
        current_.sequence = Base::measure_sequence(0);
        // The bound that the host was told may be too low.
        is_alone_ = current_.sequence.len_q * p_.group.by <= Config::kBlockQ;
      }
    }
    if (is_alone_) {
      at_ = 0, end_ = 1;
    } else if (p_.plan == nullptr) {
      Base::begin();
    } else {
      Base::begin(load_plan_entry(p_, blockIdx.x));
    }
  }

  // Takes the next piece of this CTA's share; false after the last.
  __device__ __forceinline__ bool next(Piece& piece) {
    if (at_ >= end_) return false;
    if (is_alone_) return take_alone(piece);
    while (at_ >= before_ + current_.units()) {
      // Lengths may have changed since a plan was made; memory behind them is not read.
      if (current_.sequence.b + 1 >= p_.call.batch) return false;
      before_ += current_.units();
      current_ = Base::load(current_.sequence.b + 1);
    }
    const u32 item = (at_ - before_) / current_.cost;
    const u32 begins = before_ + item * current_.cost, ends = begins + current_.cost;
    const u32 stop = min(ends, end_);
    piece.sequence = current_.sequence;
    const u32 tiles = current_.tiles;
    piece.h_kv = share_quotient(item, tiles);
    // The last tile comes first, as a causal mask makes it the slowest.
    piece.first_row = (tiles - 1 - (item - piece.h_kv * tiles)) * Config::kBlockQ;
    const auto step_at = [&](u32 unit) {
      return max(static_cast<int>(unit - begins) - ends_, 0) * current_.unit_steps;
    };
    // The tile's own keys end where its mask says.
    piece.steps = {step_at(at_), stop == ends ? kAllSteps : step_at(stop)};
    piece.first_cta = share_quotient(begins, share_);
    piece.pieces = share_quotient(ends - 1, share_) - piece.first_cta + 1;
    piece.index = blockIdx.x - piece.first_cta;
    at_ = stop;
    return true;
  }

 private:
  static constexpr int kAllSteps = 1 << 24;

  // Wider tiles serve more queries.
  static constexpr bool kMayBeAlone = Config::kTeams > 1 && Config::kBlockQ <= 32;

  // Few instructions lead to the first copy: most of a short call's come before it, in code that no
  // multiprocessor holds yet, and these are a tenth of those that find out the shares of several
  // sequences. Pieces differ by a step at most.
  __device__ __forceinline__ bool take_alone(Piece& piece) {
    at_ = end_;
    if (p_.plan != nullptr) check_plan_key(p_, __ldg(plan_entry_at(p_, blockIdx.x)));
    const int most = p_.alone.by;
    piece.h_kv = quotient(blockIdx.x, p_.alone);
    piece.first_cta = piece.h_kv * most;
    piece.sequence = current_.sequence;
    piece.first_row = 0;
    const int index = blockIdx.x - piece.first_cta, steps = Base::steps_of(piece.sequence);
    // Sixteen partial results are joined in about the time of a step.
    const int bits = max(4, 2 + (32 - __clz(steps)) / 2), worthwhile = 1 << bits;
    const int pieces = max(min(min(steps, worthwhile), most), 1);
    const auto step_at = [&](int i) {
      if (i == pieces) return kAllSteps;
      if (pieces == steps) return i;
      return pieces == worthwhile ? i * steps >> bits : quotient(i * steps, p_.alone);
    };
    piece.steps = {step_at(index), step_at(index + 1)};
    piece.index = index, piece.pieces = pieces;
    return index < pieces && piece.h_kv < p_.call.heads_kv && piece.sequence.len_q != 0;
  }

  // Decoding has one tile for each KV head and, mostly, one unit for each CTA: it is spared the
  // quotients, each of which waits for the one before. Wide tiles serve more queries, and spilled
  // 56 bytes with a branch here.
  __device__ __forceinline__ static u32 share_quotient(u32 x, u32 divisor) {
    if constexpr (Config::kBlockQ > 32) return x / divisor;
    return divisor == 1 ? x : x / divisor;
  }

  bool is_alone_ = false;
};

}  // namespace kiln
