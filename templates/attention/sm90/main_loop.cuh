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
#include "/kiln/attention/sm90/walk.cuh"
#include "/kiln/attention/softmax.cuh"

namespace kiln {

// Barrier 1 + g is math group g's turn.
template <class Config>
struct Turns {
  static constexpr bool kUsed = Config::kTurns && Config::kGroups > 1;
  int group;

  // Called once by every group before its first turn.
  __device__ __forceinline__ void begin() const {
    if (kUsed && group == Config::kGroups - 1) arrive_threads<256>(1);
  }
  __device__ __forceinline__ void take() const {
    if constexpr (kUsed) sync_threads<256>(1 + group);
  }
  __device__ __forceinline__ void give() const {
    if constexpr (kUsed) arrive_threads<256>(1 + (group + 1 == Config::kGroups ? 0 : group + 1));
  }
};

// The accumulators as one array, as wgmma takes them.
template <class Map>
__device__ __forceinline__ float (&registers_of(Fragment<Map>& fragment)) [Map::kColTiles * 4] {
  static_assert(Map::kRowTiles == 1, "a warp of a wgmma holds 16 rows");
  return reinterpret_cast<float (&)[Map::kColTiles * 4]>(fragment.block);
}

// Each warp arrives on its own because the group's warps do not run in step.
__device__ __forceinline__ void release(u32 empty) {
  if (threadIdx.x % 32 == 0) arrive(empty);
}

template <class Config, class Variant>
class KeyLoop {
  using Shape = AttentionSm90Shape<Config>;
  using Element = typename Config::Element;
  using ScoreProducts = typename Config::Scores;
  using OutputProducts = typename Config::Outputs;
  using Scores = Fragment<typename Shape::ScoreMap>;
  using KvPosition = typename Shape::KvRing::Position;

 public:
  using Softmax = OnlineSoftmax<typename Shape::ScoreMap>;
  using Out = Fragment<typename Shape::OutMap>;

  __device__ __forceinline__ KeyLoop(const AttentionArgs<Variant>& args, int group)
      : args_(args), turns_{group} {
    turns_.begin();
    // The magnitude of the scale goes into the exponent if no hook sees the logits; 0 is then
    // replaced by a tiny scale, because 0 * -inf is NaN.
    exponent_scale_ =
        Variant::kTransformsLogits ? kLog2e : fmaxf(fabsf(args.params().scale) * kLog2e, 1e-30f);
  }

  // Computes `out` and `softmax`, which has been started, from the tiles of keys that this group's
  // rows of `tile` see. Q lies at `q` for this group; release_q() is called once when it has been
  // read.
  template <class ReleaseQ>
  __device__ __forceinline__ void attend(WalkReader<Config>& walk, const QueryTile& tile, u32 q,
                                         Softmax& softmax, Out& out, ReleaseQ release_q) {
    const auto k_ring = Shape::k_ring(), v_ring = Shape::v_ring();
    // Products are always added: were the first to replace `out`, ptxas would keep two copies of it
    // for a query tile without keys, in local memory.
    out.clear();
    u32 first = 1, needs_q = 1;  // words, as in WalkReader::KeyTile
    auto keys = walk.next();
#pragma unroll 1
    for (; keys.exists; first = 0) {
      wait(k_ring.full(at_.stage), at_.parity);
      if (!first) turns_.take();
      if (!keys.seen) {
        if (!first) turns_.give();
        pass_over();
        keys = walk.next();
        continue;
      }
      Scores scores;
      u32 weights[Shape::kWeightRegisters];
      begin_products();
      multiply_scores(scores, q);
      if (!first) turns_.give();
      ScoreProducts::template finish<0>(registers_of(scores));
      release(k_ring.empty(at_.stage));
      see(scores, tile, keys);
      softmax.step(scores, out, exponent_scale_, [](auto&) {});
      pack(weights, scores);
#pragma unroll 1
      for (keys = walk.next(); keys.seen; keys = walk.next()) {
        const KvPosition v_at = at_;
        at_.advance();
        wait(k_ring.full(at_.stage), at_.parity);
        turns_.take();
        begin_products();
        multiply_scores(scores, q);
        wait(v_ring.full(v_at.stage), v_at.parity);
        begin_products();  // ptxas wants one in each basic block with products
        multiply_values(out, weights, v_at);
        turns_.give();
        ScoreProducts::template finish<1>(registers_of(scores));
        release(k_ring.empty(at_.stage));
        see(scores, tile, keys);
        float shrink[Softmax::kRows];
        const bool grows = softmax.grow(
            scores, exponent_scale_, [](auto&) {},
            [&](int r, float factor) { shrink[r] = factor; });
        softmax.weigh(scores, exponent_scale_);
        OutputProducts::template finish<0>(registers_of(out));
        release(v_ring.empty(v_at.stage));
        pack(weights, scores);
        if (grows) rescale(out, shrink);
      }
      if (!walk.may_see_more()) {
        release_q();
        needs_q = 0;
      }
      wait(v_ring.full(at_.stage), at_.parity);
      begin_products();
      multiply_values(out, weights, at_);
      OutputProducts::template finish<0>(registers_of(out));
      release(v_ring.empty(at_.stage));
      at_.advance();
    }
    if (needs_q) release_q();
  }

 private:
  using KeyTile = typename WalkReader<Config>::KeyTile;

  // Releases the stages of a tile that this group does not see, whose K has arrived. V has to
  // arrive too: a release before would count for an earlier round of its stage.
  __device__ __forceinline__ void pass_over() {
    const auto k_ring = Shape::k_ring(), v_ring = Shape::v_ring();
    release(k_ring.empty(at_.stage));
    wait(v_ring.full(at_.stage), at_.parity);
    release(v_ring.empty(at_.stage));
    at_.advance();
  }
  __device__ __forceinline__ void multiply_scores(Scores& scores, u32 q) const {
    ScoreProducts::multiply(registers_of(scores), operand_descriptor_low(q, Shape::kQSlabBytes),
                            operand_descriptor_low(Shape::k(at_.stage), Shape::kKvSlabBytes), 0);
    commit_products();
  }
  __device__ __forceinline__ void multiply_values(Out& out,
                                                  const u32 (&weights)[Shape::kWeightRegisters],
                                                  const KvPosition& at) const {
    OutputProducts::multiply(registers_of(out), weights,
                             operand_descriptor_low(Shape::v(at.stage), Shape::kKvSlabBytes), 1);
    commit_products();
  }

  // Turns products into logits, -inf where the key is hidden.
  __device__ __forceinline__ void see(Scores& scores, const QueryTile& tile,
                                      const KeyTile& keys) const {
    const Variant& variant = args_.variant();
    const float scale = args_.params().scale;
    const int row = turns_.group * 64 + threadIdx.x % 128 / 32 * 16;
    if (scale < 0.0f) {
#pragma unroll
      for (float& score : registers_of(scores)) score = -score;
    }
    if constexpr (Variant::kTransformsLogits) {
      transform_logits(scores, variant, tile, row, keys.kv_first, fabsf(scale));
    }
    if (keys.partial) {
      mask_scores(scores, variant, tile, row, keys.kv_first,
                  visible_range(variant, tile.rows_from(tile.first_row, Shape::kBlockQ)));
    }
  }

  // The accumulators of the first product already have the register layout of the second product's
  // A operand.
  __device__ __forceinline__ static void pack(u32 (&weights)[Shape::kWeightRegisters],
                                              Scores& scores) {
#pragma unroll
    for (int i = 0; i < Shape::kWeightRegisters; ++i) {
      weights[i] = pack2<Element>(registers_of(scores)[2 * i], registers_of(scores)[2 * i + 1]);
    }
  }
  __device__ __forceinline__ static void rescale(Out& out, const float (&shrink)[Softmax::kRows]) {
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < Shape::OutMap::kCols; ++c) out.at(r, c) *= shrink[r];
    }
  }

  const AttentionArgs<Variant>& args_;
  float exponent_scale_;
  Turns<Config> turns_;
  KvPosition at_ = Shape::KvRing::consumer();  // of K, and of V while no product waits for it
};

}  // namespace kiln
