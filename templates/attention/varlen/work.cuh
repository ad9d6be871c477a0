// Takes the pieces of a CTA's share of the work, which deal.cuh deals. Pieces of a tile meet in the
// workspace.
#pragma once
#include "/kiln/attention/varlen/deal.cuh"

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
    if (p_.plan == nullptr) {
      Base::begin();
    } else {
      Base::begin(load_entry());
    }
  }

  // Takes the next piece of this CTA's share; false after the last.
  __device__ __forceinline__ bool next(Piece& piece) {
    if (at_ >= end_) return false;
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
    piece.h_kv = quotient(item, tiles);
    // The last tile comes first, as a causal mask makes it the slowest.
    piece.first_row = (tiles - 1 - (item - piece.h_kv * tiles)) * Config::kBlockQ;
    const auto step_at = [&](u32 unit) {
      return max(static_cast<int>(unit - begins) - ends_, 0) * current_.unit_steps;
    };
    // The tile's own keys end where its mask says.
    piece.steps = {step_at(at_), stop == ends ? kAllSteps : step_at(stop)};
    piece.first_cta = quotient(begins, share_);
    piece.pieces = quotient(ends - 1, share_) - piece.first_cta + 1;
    piece.index = blockIdx.x - piece.first_cta;
    at_ = stop;
    return true;
  }

 private:
  static constexpr int kAllSteps = 1 << 24;

  // Decoding has one tile for each KV head and, mostly, one unit for each CTA: it is spared the
  // quotients, each of which waits for the one before. Wide tiles serve more queries, and spilled
  // 56 bytes with a branch here.
  __device__ __forceinline__ static u32 quotient(u32 x, u32 divisor) {
    if constexpr (Config::kBlockQ > 32) return x / divisor;
    return divisor == 1 ? x : x / divisor;
  }

  __device__ __forceinline__ PlanEntry load_entry() const {
    const uint4* const words = reinterpret_cast<const uint4*>(p_.plan) +
                               (p_.plan_begin + blockIdx.x) * (kAttentionPlanWords / 4);
    return {{__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)}};
  }
};

}  // namespace kiln
