// The main loop of a math warpgroup over the tiles of keys of one query tile.
//
// The tensor cores are kept busy during the softmax: the scores of a tile are multiplied together
// with the weights of the tile before it, and while the softmax of the one runs, the other product
// is still under way.
//
//   tensor cores   S(0)          | S(1), O += P(0) V(0) | S(2), O += P(1) V(1) | ..
//   other units          P(0)    |      softmax: P(1)   |      softmax: P(2)   | ..
//
// With kTurns, the warpgroups issue their products in turns, so that the softmax of one runs while
// the products of another do. A tile that only other groups see interrupts the overlap, and the
// group begins anew after it; where a mask hides it, such tiles mostly come last.
#pragma once
#include "/kiln/attention/mask.cuh"
#include "/kiln/attention/sm90/turns.cuh"
#include "/kiln/attention/sm90/value_products.cuh"
#include "/kiln/attention/sm90/walk.cuh"
#include "/kiln/attention/softmax.cuh"
#include "/kiln/base/quantize.cuh"

namespace kiln {

// Each warp arrives on its own because the group's warps do not run in step.
__device__ __forceinline__ void release(u32 empty) {
  if (threadIdx.x % 32 == 0) arrive(empty);
}

template <class Config, class Args>
class KeyLoop {
  using Variant = typename Args::Variant;
  using Tile = typename Config::Storage::Tile;
  using Shape = AttentionSm90Shape<Config>;
  using ScoreProducts = typename Config::Scores;
  using ValueProducts = AttentionValueProducts<Config>;
  using Scores = Fragment<typename Shape::ScoreMap>;
  using KvPosition = typename Shape::KvRing::Position;
  static constexpr bool kHasHeadScales = Config::kHasScales;
  static constexpr bool kTilts = Config::kTilts;
  static_assert(!kTilts || (Variant::kTilts && !kHasHeadScales),
                "attention sm_90a: the variant has no tilt, or keys have scales of their own");
  // The scale of logits differs by the head.
  static constexpr bool kScalesByHead = kHasHeadScales || kTilts;
  // Tiles that are far from a warp's rows get a number that all their logits have in common.
  static constexpr bool kShifts = Variant::kIsDistanceBias && !kTilts && !kHasHeadScales;
  static constexpr bool kTransforms = Variant::kTransformsLogits && !kTilts;

 public:
  static constexpr bool kTells = kTellsKeep<Config, Variant>;
  using Walk = WalkReader<Config, kTells>;
  using Softmax = OnlineSoftmax<typename Shape::ScoreMap, false, Shape::kMultipliesBytes,
                                Variant::kTakesMaxima>;
  using Out = Fragment<typename Shape::OutMap>;
  // The magnitudes of scales, which differ by the row where queries do.
  using Sizes = conditional<Shape::kScalesQueries, RowScales<Softmax::kRows>, float>;
  using ExponentScale =
      conditional<kTilts, TiltedScale<Softmax::kRows>,
                  conditional<kShifts, ShiftedScale, conditional<kTransforms, float, Sizes>>>;

  __device__ __forceinline__ KeyLoop(const Args& args, int group) : args_(args), turns_{group} {
    turns_.begin();
    if constexpr (!kScalesByHead && !kShifts) {
      set_scale(call_of(args.call.params()).scale, 0);
    }
  }

  // Called when Q of a query tile has arrived in its stage, before any of its keys. A quantised
  // cache has scales of its own for each head, whoever has widened its elements.
  __device__ __forceinline__ void begin(const Tile& tile, u32 q_stage) {
    if constexpr (kHasHeadScales) {
      set_scale(tile.p.call.scale * tile.logit_scale(), Shape::row_factors(q_stage));
    }
    if constexpr (kTilts) set_tilt(tile);
    if constexpr (kShifts) set_far_bias(tile);
  }

  // Goes to the first tile of keys that this group sees of a new query tile; returns whether there
  // is one. If so, start_scores() and attend() follow.
  __device__ __forceinline__ bool seek_first(Walk& walk) {
    keys_ = walk.next();
    is_first_ = 1;
    seek(walk);
    return keys_.seen != 0;
  }

  // Where this group's rows of Q lie in shared memory, and what logits grow by from key to key.
  struct Queries {
    u32 rows, growth;
  };
  // Starts the product of the tile of keys that has been sought with Q.
  __device__ __forceinline__ void start_scores(const Queries& q) {
    wait_as_warp(Shape::k_ring().full(at_.stage), at_.parity);
    if (!is_first_) turns_.take();
    begin_products();
    multiply_scores(q);
    if (!is_first_) turns_.give();
    is_first_ = 0;
  }

  // After start_scores(), adds to `out` and `softmax` the tiles of keys that this group's rows of
  // `tile` see. release_q() is called once when Q has been read.
  template <class ReleaseQ>
  __device__ __forceinline__ void attend(Walk& walk, const Tile& tile, const Queries& q,
                                         Softmax& softmax, Out& out, ReleaseQ release_q) {
    const auto k_ring = Shape::k_ring(), v_ring = Shape::v_ring();
    // The flag is kept from tile to tile where keys are converted: found anew, it spills 156 bytes
    // there (D256 with ALiBi). Kept, it spills in kernels of documents.
    constexpr bool kKeepsNeed = Shape::kConverts;
    u32 needs_q = 1;  // a word, as in WalkReader::KeyTile
    typename Walk::KeyTile next;
    KvPosition ahead;
    const auto ask = [&] {
      next = walk.next();
      ahead = at_;
      ahead.advance();
    };
#pragma unroll 1
    while (true) {
      u32 weights[Shape::kWeightRegisters];
      if constexpr (kAsksEarly) ask();
      ScoreProducts::template finish<0>(registers_of(scores_));
      release(k_ring.empty(at_.stage));
      see(tile);
      softmax.step(scores_, out, exponent_scale_, [](auto&) {});
      if constexpr (kUsesLimits) softmax.set_limits(exponent_scale_);
      pack(weights);
      if constexpr (!kAsksEarly) ask();
#pragma unroll 1
      for (keys_ = next; keys_.seen; keys_ = next) {
        const KvPosition v_at = at_;
        at_ = ahead;
        wait_as_warp(k_ring.full(at_.stage), at_.parity);
        turns_.take();
        begin_products();
        multiply_scores(q);
        wait_as_warp(v_ring.full(v_at.stage), v_at.parity);
        begin_products();  // ptxas wants one in each basic block with products
        multiply_values(out, weights, v_at);
        turns_.give();
        if constexpr (kAsksEarly) ask();
        ScoreProducts::template finish<1>(registers_of(scores_));
        release(k_ring.empty(at_.stage));
        see(tile);
        float shrink[Softmax::kRows];
        const bool grows = grow(softmax, [&](int r, float factor) { shrink[r] = factor; });
        softmax.weigh(scores_, exponent_scale_);
        ValueProducts::finish(out);
        release(v_ring.empty(v_at.stage));
        pack(weights);
        if (grows) rescale(out, shrink);
        if constexpr (!kAsksEarly) ask();
      }
      const bool may_see_more = walk.may_see_more();
      if (!kKeepsNeed || !may_see_more) needs_q = may_see_more ? 1 : 0;
      if (!may_see_more) release_q();
      wait_as_warp(v_ring.full(at_.stage), at_.parity);
      begin_products();
      multiply_values(out, weights, at_);
      ValueProducts::finish(out);
      release(v_ring.empty(at_.stage));
      at_.advance();
      seek(walk);
      if (!keys_.seen) {
        if (needs_q) release_q();
        break;
      }
      start_scores(q);
    }
  }

 private:
  // The next tile of keys is asked for while products are under way, which hides the time that the
  // answer takes: 3 % at 512 and 1k keys. Code that reads tensors has no registers to spare for
  // it, and is up to 7 % slower with it; other code at every logit is 1 to 4 % faster.
  static constexpr bool kAsksEarly =
      !((kTransforms || Variant::kKeeps) && Variant::kIndexesByKey) || kTells;

  // Limits save comparisons where rows soon have a maximum that grows seldom. With ALiBi and under
  // windows, rows have none, or a tiny one, for several tiles, and are up to 10 % slower. So are,
  // by 1 to 2 %, the tiles of 16 bits that take no turns.
  static constexpr bool kUsesLimits = !Variant::kTransformsLogits && !Variant::kTakesMaxima &&
                                      Variant::kShowsFirstKeys &&
                                      (Config::kTurns || Shape::kMultipliesBytes);
  template <class Shrink>
  __device__ __forceinline__ bool grow(Softmax& softmax, Shrink shrink) {
    if constexpr (kUsesLimits) return softmax.grow_by_limits(scores_, exponent_scale_, shrink);
    return softmax.grow(scores_, exponent_scale_, [](auto&) {}, shrink);
  }

  // The magnitude of the scale goes into the exponent if no hook sees the logits.
  __device__ __forceinline__ void set_scale(float scale, u32 row_factors) {
    Sizes sizes;
    if constexpr (Shape::kScalesQueries) {
#pragma unroll
      for (int r = 0; r < Softmax::kRows; ++r) {
        const u32 row = turns_.group * 64 + threadIdx.x % 128 / 32 * 16 + Shape::ScoreMap::row(r);
        sizes.row[r] = load_shared<float>(row_factors + row * 4) * fabsf(scale);
      }
    } else {
      sizes = fabsf(scale);
    }
    const auto scales = exponent_scales<kTransforms>(sizes, args_.call.variant().factor_after());
    if constexpr (kTilts) {
      exponent_scale_.factor = scales;
    } else {
      exponent_scale_ = scales;
    }
    if constexpr (kScalesByHead) sizes_ = sizes, is_negative_ = scale < 0.0f ? 1 : 0;
  }
  __device__ __forceinline__ void set_tilt(const Tile& tile) {
    const Variant& variant = args_.call.variant();
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r) {
      Position own = tile.position(first_row() + Shape::ScoreMap::row(r), 0);
      own.kv = Variant::kTiltsFromRow ? min(own.q, own.row) : own.q;
      own.row_distance = own.distance = to_float(own.q - own.kv);
      own_[r] = variant.template logits<false>(0.0f, own) * kLog2e;
      if (r > 0) continue;
      set_scale(call_of(args_.call.params()).scale * variant.tilt_factor(own), 0);
      first_own_ = own.kv;
      tilt_ = variant.tilt(own) * kLog2e;
    }
  }
  __device__ __forceinline__ void set_far_bias(const Tile& tile) {
    const Variant& variant = args_.call.variant();
    const Position at = tile.position(first_row(), 0);
    const int far = variant.far_distance(at);
    far_before_ = variant.bias_at(at, -far) * kLog2e;
    far_behind_ = variant.bias_at(at, far) * kLog2e;
  }
  // For the tile keys_: what its first key has, from what the query's own has.
  __device__ __forceinline__ void shift_rows() {
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r) {
      const int row = Shape::ScoreMap::row(r) - Shape::ScoreMap::row(0);
      const int distance = keys_.kv_first - first_own_ - row;
      exponent_scale_.shift[r] = fmaf(tilt_, to_float(distance), own_[r]);
    }
  }
  __device__ __forceinline__ Sizes sizes() const {
    if constexpr (kScalesByHead)
      return sizes_;
    else
      return fabsf(call_of(args_.call.params()).scale);
  }
  __device__ __forceinline__ u32 is_negative() const {
    if constexpr (kScalesByHead) return is_negative_;
    return call_of(args_.call.params()).scale < 0.0f ? 1 : 0;
  }

  // Passes over the tiles of keys that only other groups see. Each tile but the query tile's first
  // takes a turn, seen or not.
  __device__ __forceinline__ void seek(Walk& walk) {
#pragma unroll 1
    for (; keys_.exists && !keys_.seen; keys_ = walk.next()) {
      wait_as_warp(Shape::k_ring().full(at_.stage), at_.parity);
      if (!is_first_) {
        turns_.take();
        turns_.give();
      }
      is_first_ = 0;
      pass_over();
    }
  }
  // Releases the stages of a tile that this group does not see, whose K has arrived. V has to
  // arrive too: a release before would count for an earlier round of its stage.
  __device__ __forceinline__ void pass_over() {
    const auto k_ring = Shape::k_ring(), v_ring = Shape::v_ring();
    release(k_ring.empty(at_.stage));
    wait_as_warp(v_ring.full(at_.stage), at_.parity);
    release(v_ring.empty(at_.stage));
    at_.advance();
  }
  __device__ __forceinline__ void multiply_scores(const Queries& q) {
    if constexpr (kTilts) {
      Config::Tilts::multiply(registers_of(scores_), operand_descriptor_low(q.growth, 0),
                              operand_descriptor_low(Shape::places(), 0), 0);
    }
    ScoreProducts::multiply(
        registers_of(scores_), operand_descriptor_low(q.rows, Shape::kQSlabBytes),
        operand_descriptor_low(Shape::k(at_.stage), Shape::kKvSlabBytes), kTilts ? 1 : 0);
    commit_products();
  }
  __device__ __forceinline__ void multiply_values(Out& out,
                                                  const u32 (&weights)[Shape::kWeightRegisters],
                                                  const KvPosition& at) const {
    ValueProducts::multiply(out, weights, Shape::v(at.stage));
    commit_products();
  }

  // Turns products into logits, -inf where the key is hidden.
  __device__ __forceinline__ void see(const Tile& tile) {
    const Variant& variant = args_.call.variant();
    const int row = first_row();
    const u32 negative = is_negative();
    if constexpr (kTilts) shift_rows();
    if constexpr (kShifts) {
      if (negative) negate_scores();
      // All rows of the warp agree, which the vote tells ptxas.
      const Position first = tile.position(row, 0);
      const int ahead = keys_.kv_first - first.q, far = variant.far_distance(first);
      const bool before = ahead + Shape::kBlockKv - 1 <= -far, behind = ahead - 15 >= far;
      if (__any_sync(~0u, before | behind)) {
        exponent_scale_ = {exponent_scales(sizes()), before ? far_before_ : far_behind_};
      } else {
        add_biases(scores_, variant, tile, row, keys_.kv_first, sizes());
        exponent_scale_ = {kLog2e, 0.0f};
      }
      if (keys_.partial) mask(tile, row);
    } else if constexpr (kTransforms) {
      if (negative) negate_scores();
      const float size = multiply_rows(scores_, sizes());
      transform_logits<true>(scores_, variant, tile, row, keys_.kv_first, size);
      if (keys_.partial) mask(tile, row);
    } else if (keys_.partial | negative) {  // one branch, as both are rare
      if (negative) negate_scores();
      if (keys_.partial) mask(tile, row);
    }
  }
  // The warp's first row of the query tile.
  __device__ __forceinline__ int first_row() const {
    return turns_.group * 64 + threadIdx.x % 128 / 32 * 16;
  }
  __device__ __forceinline__ void negate_scores() {
#pragma unroll
    for (float& score : registers_of(scores_)) score = -score;
  }
  __device__ __forceinline__ void mask(const Tile& tile, int row) {
    const Variant& variant = args_.call.variant();
    const Range range = binding_range(variant, tile.rows(0, Shape::kBlockQ));
    // Hidden from the compiler, which would compute addresses of rows ahead of the loop and spill.
    Tile here = tile;
    if constexpr (kTells || (kTilts && Variant::kKeeps)) {
      here.b = static_cast<int>(opaque(static_cast<u32>(tile.b)));
      here.h = static_cast<int>(opaque(static_cast<u32>(tile.h)));
      here.first_row = static_cast<int>(opaque(static_cast<u32>(tile.first_row)));
    }
    if constexpr (kTells) {
      if (!keys_.keeps) {
        mask_by_range(scores_, variant, here, row, keys_.kv_first, range);
        return;
      }
    }
    if constexpr (kTells && Variant::template kKeepsInBlocks<64, Shape::kBlockKv>) {
      mask_scores(scores_, InBlock<Variant>{variant}, here, row, keys_.kv_first, range);
    } else {
      mask_scores(scores_, variant, here, row, keys_.kv_first, range);
    }
  }

  // The accumulators of the first product already have the register layout of the second product's
  // A operand. Of bytes, a register has four neighbouring keys of a row, where the lane has two
  // pairs that are 8 keys apart: the values are in this order too, see transpose.cuh.
  __device__ __forceinline__ void pack(u32 (&weights)[Shape::kWeightRegisters]) {
    const auto& scores = registers_of(scores_);
#pragma unroll
    for (int i = 0; i < Shape::kWeightRegisters; ++i) {
      if constexpr (Shape::kMultipliesBytes) {
        const int pair = i / 2 * 8 + i % 2 * 2;
        weights[i] = pack_e4m3(scores[pair], scores[pair + 1], scores[pair + 4], scores[pair + 5]);
      } else {
        weights[i] = pack2<typename Shape::Weight>(scores[2 * i], scores[2 * i + 1]);
      }
    }
  }
  __device__ __forceinline__ static void rescale(Out& out, const float (&shrink)[Softmax::kRows]) {
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < Shape::OutMap::kCols; ++c) out.at(r, c) *= shrink[r];
    }
  }

  const Args& args_;
  ExponentScale exponent_scale_;
  // These are of the query tile's logits, and set with kScalesByHead alone.
  Sizes sizes_;
  u32 is_negative_;
  // With kTilts, as powers of two: what logits grow by from key to key, and what they are of a
  // score of 0 of the query's own key, or that of its row; and that key of the lane's first query.
  float tilt_, own_[Softmax::kRows];
  int first_own_;
  // With kShifts, the biases of keys that are far away, as powers of two.
  float far_before_, far_behind_;
  Turns<Config> turns_;
  typename Walk::KeyTile keys_;
  u32 is_first_;                               // the query tile's first tile of keys
  Scores scores_;                              // of keys_; under way after start_scores()
  KvPosition at_ = Shape::KvRing::consumer();  // of K, and of V while no product waits for it
};

}  // namespace kiln
