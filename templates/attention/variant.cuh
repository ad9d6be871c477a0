// The variant interface and the composition of variants. Everything that changes attention's
// logits, mask, denominator or output is a variant, never a flag in the main loop.
#pragma once
#include "/kiln/attention/over_index.cuh"
#include "/kiln/attention/position.cuh"
#include "/kiln/attention/variant_tensor.cuh"
#include "/kiln/base/math.cuh"
#include "/kiln/base/types.cuh"

namespace kiln {

// Represents the number sum * 2^max. The online softmax keeps one for each row.
struct RowSum {
  float max, sum;

  // Adds e^logit. -inf adds nothing, and +inf outweighs everything.
  __device__ __forceinline__ void add(float logit) {
    const float x = logit * kLog2e;
    const float larger = fmaxf(max, x);
    if (larger == -KILN_INFINITY) return;
    sum = sum * exp2_approx(max - larger) + (x == larger ? 1.0f : exp2_approx(x - larger));
    max = larger;
  }
};

// A variant is a struct of Slots and VariantTensors in the kernel's argument block, with hooks. It
// derives from VariantDefaults and redefines what it needs. A hook is used only if its trait is set
// and costs nothing otherwise. (Unique keeps the bases of different variants distinct: equal empty
// bases may not share an address, which would move the Slots.)
template <class Unique>
struct DefaultHooks {
  static constexpr bool kTransformsLogits = false;  // logits()
  static constexpr bool kMasks = false;             // keep() or visible(), kv_range(), tile()
  static constexpr bool kMasksByRange = false;      // visible() and not keep()
  static constexpr bool kStartsRows = false;        // row_init()
  static constexpr bool kFinishesRows = false;      // row_finish()
  static constexpr bool kTransformsOutput = false;  // out()
  static constexpr bool kTakesMaxima = false;       // take_maximum()
  // Hooks may index tensors by at.kv. Where they do not, it is cheaper to let it run past the end.
  static constexpr bool kIndexesByKey = true;
  // Handles two keys at once: Two<float> logits_of_two(Two<float> logits, const Position& first)
  // replaces logits(), Two<bool> keep_two(const Position& first) replaces keep(). The first key is
  // even unless it is the last of all; the result for the second is then discarded.
  static constexpr bool kTakesTwo = false;
  // Computes a warp's logits by narrow_logits() instead of logits() where none of them exceeds
  // narrow_limit() in magnitude. For the first variant that transforms logits.
  static constexpr bool kNarrows = false;
  // Adds bias_at(at, kv - q) to the logits and has no logits(). It is the same for all distances of
  // far_distance() or more to one side, and of those to the other. Both are of one b and one h.
  static constexpr bool kHasDistanceBias = false;
  // tile(rows, kv_first, kv_last), for one sequence, in the place of the other tile().
  static constexpr bool kTilesBySequence = false;
  // tile() may skip keys anywhere within kv_range(), and is cheaper than a walk over all of them:
  // it is first asked about a 32nd of them at a time.
  static constexpr bool kSearchesKeys = false;
  // tile() reads tensors, though keep() reads none at keys: nobody knows what queries cost.
  static constexpr bool kFillsTiles = false;
  // tile() says the same within a block of so many rows and keys, counted from the first of each,
  // and calls it partial only where keep_in_block() says what is visible. 0: it has no blocks.
  static constexpr int kBlockRows = 0, kBlockKeys = 0;
  // kv_range() follows from keep(), which hides all that it leaves out: who has walked within it
  // need not ask for it again. For ranges that take long to compute.
  static constexpr bool kRangeFollowsKeep = false;
  // A mask with keep() may also have visible(). For a partial tile of which asks_keep() is false,
  // visible(), asked at the tile's first key, says all that is hidden. asks_keep() takes tile()'s
  // arguments.
  static constexpr bool kShowsRuns = false;
  // keep() is asked about a key for all rows of a lane, then about the next key: what it computes
  // of a key serves all rows, where row by row ptxas keeps it for every key, and spills. False for
  // masks that compute more of the row.
  static constexpr bool kKeepsByColumn = true;
  // Up to the query's own key, logits() returns tilt_factor() times the logit, plus tilt() times
  // the key's index, plus what is the same for all keys of a row. Both are of one b and one h.
  static constexpr bool kTilts = false;
  static constexpr bool kTiltsFromRow = false;  // up to the key at the query's row, if that is less
  // The mask shows each row the first keys, so that its maximum is found in its first tile.
  static constexpr bool kShowsFirstKeys = false;

  // Hides CUDA's function in hooks, which takes three times as long.
  __device__ __forceinline__ static float tanh(float x) { return tanh_of_logit(x); }

  // Returns the new logit. `logit` is already scaled.
  __device__ __forceinline__ float logits(float logit, const Position&) const { return logit; }
  // Logits are multiplied by factor_before() ahead of logits() and by factor_after() > 0 behind it.
  // The first variant's former costs nothing, as it goes into the scale; nor, on Hopper, the last
  // one's latter, which goes into the exponents.
  __device__ __forceinline__ float factor_before() const { return 1.0f; }
  __device__ __forceinline__ float factor_after() const { return 1.0f; }
  __device__ __forceinline__ int far_distance(const Position&) const { return 0; }
  __device__ __forceinline__ float bias_at(const Position&, int) const { return 0.0f; }
  __device__ __forceinline__ float tilt(const Position&) const { return 0.0f; }
  __device__ __forceinline__ float tilt_factor(const Position&) const { return 1.0f; }

  // Returns whether the key is visible. Called only for tiles that tile() calls partial.
  __device__ __forceinline__ bool keep(const Position&) const { return true; }
  // The same, of a tile within a block that tile() calls partial.
  __device__ __forceinline__ bool keep_in_block(const Position&) const { return true; }
  // The same for a mask that shows each row one run of keys, which is cheaper. The run may reach
  // beyond the sequence and may be empty (end <= begin).
  __device__ __forceinline__ Range visible(const Position& row) const { return {0, row.len_kv}; }

  // Returns whether keep() must be asked about a partial tile; else visible() says all, see
  // kShowsRuns.
  __device__ __forceinline__ bool asks_keep(const TileRows&, int, int) const { return true; }

  // Returns a range outside of which no row of the tile sees a key. Uniform over the CTA, but that
  // a lane may ask about a sequence of its own.
  __device__ __forceinline__ Range kv_range(const TileRows& rows) const { return {0, rows.len_kv}; }
  // Returns what queries q_first..q_last see of keys kv_first..kv_last: nothing, all, or what
  // keep() says. Uniform over the CTA. By default the mask is evaluated everywhere.
  __device__ __forceinline__ Tile tile(int, int, int, int) const { return Tile::partial; }
  __device__ __forceinline__ Tile tile(const TileRows&, int, int) const { return Tile::partial; }

  // Sets what a row's sum of e^logit starts from. This counts in the LSE.
  __device__ __forceinline__ void row_init(RowSum&, const Position&) const {}
  // Adds to the sum at the end, for the denominator only. This does not count in the LSE.
  __device__ __forceinline__ void row_finish(RowSum&, const Position&) const {}
  // Returns the new value of an output element, before it is rounded.
  __device__ __forceinline__ float out(float o, const Position&) const { return o; }
  // Takes the largest logit of a row, or -inf. row_init()'s start counts, row_finish() does not.
  __device__ __forceinline__ void take_maximum(float, const Position&) const {}
};
using VariantDefaults = DefaultHooks<void>;

// Composes variants: logits change in the order of the list, masks are ANDed, ranges intersected.
template <class... Vs>
struct Variants : Vs... {
  static constexpr bool kTransformsLogits = (Vs::kTransformsLogits || ...);
  static constexpr bool kMasks = (Vs::kMasks || ...);
  static constexpr bool kMasksByRange = ((Vs::kMasks && Vs::kMasksByRange) || ...);
  static constexpr bool kKeeps = ((Vs::kMasks && !Vs::kMasksByRange) || ...);
  static constexpr bool kShowsRuns = ((Vs::kMasks && (Vs::kMasksByRange || Vs::kShowsRuns)) || ...);
  static constexpr bool kKeepsByColumn =
      ((Vs::kMasks && !Vs::kMasksByRange && Vs::kKeepsByColumn) || ...);
  // Tensors say which tiles are skipped, so that nobody knows what queries cost.
  static constexpr bool kSkipsByTensors =
      ((Vs::kMasks && !Vs::kMasksByRange && Vs::kTilesBySequence &&
        (Vs::kIndexesByKey || Vs::kFillsTiles)) ||
       ...);
  static constexpr bool kSearchesKeys = ((Vs::kMasks && Vs::kSearchesKeys) || ...);
  static constexpr bool kRangeFollowsKeep = ((Vs::kMasks && Vs::kRangeFollowsKeep) || ...);
  static constexpr bool kShowsFirstKeys = ((!Vs::kMasks || Vs::kShowsFirstKeys) && ...);
  // All that changes logits is a tilt.
  static constexpr bool kTilts =
      (Vs::kTilts || ...) && ((!Vs::kTransformsLogits || Vs::kTilts) && ...);
  static constexpr bool kTiltsFromRow = (Vs::kTiltsFromRow || ...);
  static constexpr bool kStartsRows = (Vs::kStartsRows || ...);
  static constexpr bool kFinishesRows = (Vs::kFinishesRows || ...);
  static constexpr bool kTransformsOutput = (Vs::kTransformsOutput || ...);
  static constexpr bool kTakesMaxima = (Vs::kTakesMaxima || ...);
  static constexpr bool kTakesTwo = (Vs::kTakesTwo || ...);
  static constexpr bool kNarrows = (Vs::kNarrows || ...);
  static constexpr bool kHasDistanceBias = (Vs::kHasDistanceBias || ...);
  // All that changes logits is one bias by distance.
  static constexpr bool kIsDistanceBias =
      ((Vs::kTransformsLogits ? 1 : 0) + ... + 0) == 1 && kHasDistanceBias;
  static constexpr bool kIndexesByKey = (Vs::kIndexesByKey || ...);
  // The number of bytes in the argument block.
  static constexpr int kBytes = ((__is_empty(Vs) ? 0 : static_cast<int>(sizeof(Vs))) + ... + 0);

  template <class V>
  __device__ __forceinline__ const V& get() const {
    return static_cast<const V&>(*this);
  }

  // The factors that logits() leaves out: of what it is given, and of what it returns.
  __device__ __forceinline__ float factor_before() const {
    float factor = 1.0f;
    ((factor = is_first<Vs>() ? get<Vs>().factor_before() : factor), ...);
    return factor;
  }
  __device__ __forceinline__ float factor_after() const {
    float factor = 1.0f;
    ((factor = is_last<Vs>() ? get<Vs>().factor_after() : factor), ...);
    return factor;
  }
  __device__ __forceinline__ float tilt(const Position& at) const {
    float tilt = 0.0f;
    ((tilt = get<Vs>().tilt_factor(at) * tilt + get<Vs>().tilt(at)), ...);
    return tilt;
  }
  __device__ __forceinline__ float tilt_factor(const Position& at) const {
    return (get<Vs>().tilt_factor(at) * ...);
  }
  __device__ __forceinline__ int far_distance(const Position& at) const {
    int most = 0;
    ((most = max(most, get<Vs>().far_distance(at))), ...);
    return most;
  }
  __device__ __forceinline__ float bias_at(const Position& at, int distance) const {
    float bias = 0.0f;  // of the one that has it
    ((bias = Vs::kHasDistanceBias ? get<Vs>().bias_at(at, distance) : bias), ...);
    return bias;
  }
  // kNarrow: no logit of the warp exceeds narrow_limit(), and its keys are all far from its rows.
  template <bool kNarrow>
  __device__ __forceinline__ float logits(float logit, const Position& at) const {
    ((logit = transform<Vs, kNarrow>(logit, at)), ...);
    return logit;
  }
  __device__ __forceinline__ float narrow_limit() const {
    float limit = 0.0f;
    (limit_narrow<Vs>(limit), ...);
    return limit;
  }
  __device__ __forceinline__ bool keep(const Position& at) const {
    return ((!Vs::kMasks || Vs::kMasksByRange || get<Vs>().keep(at)) && ...);
  }
  // Whether keep_in_block() serves such tiles: others' are partial where this mask shows all.
  template <int kRows, int kKeys>
  static constexpr bool kKeepsInBlocks =
      ((Vs::kMasks ? 1 : 0) + ... + 0) == 1 &&
      ((Vs::kMasks && Vs::kBlockRows > 0 && Vs::kBlockRows % kRows == 0 &&
        Vs::kBlockKeys % kKeys == 0) ||
       ...);
  __device__ __forceinline__ bool keep_in_block(const Position& at) const {
    return ((!Vs::kMasks || get<Vs>().keep_in_block(at)) && ...);
  }
  // Returns the logits of the key at `at`, which is even, and of the next key, at `next`.
  template <bool kNarrow>
  __device__ __forceinline__ Two<float> logits_of_two(Two<float> logits, const Position& at,
                                                      const Position& next) const {
    (transform_two<Vs, kNarrow>(logits, at, next), ...);
    return logits;
  }
  __device__ __forceinline__ Two<bool> keep_two(const Position& at, const Position& next) const {
    Two<bool> kept{true, true};
    (keep<Vs>(kept, at, next), ...);
    return kept;
  }
  __device__ __forceinline__ Range visible(const Position& row) const {
    Range range{0, row.len_kv};
    (show<Vs>(range, row), ...);
    return range;
  }
  // As visible(), of the tile that begins at this key, of which no keep() is asked.
  __device__ __forceinline__ Range visible_run(const Position& at) const {
    Range range{0, at.len_kv};
    (show<Vs, Vs::kShowsRuns>(range, at), ...);
    return range;
  }
  __device__ __forceinline__ Range kv_range(const TileRows& rows) const {
    Range range{0, rows.len_kv};
    (intersect<Vs>(range, rows), ...);
    return range;
  }
  // As kv_range(), of those masks whose keep() does not hide what their ranges leave out.
  __device__ __forceinline__ Range binding_range(const TileRows& rows) const {
    Range range{0, rows.len_kv};
    (bind<Vs>(range, rows), ...);
    return range;
  }
  __device__ __forceinline__ Tile tile(int q_first, int q_last, int kv_first, int kv_last) const {
    static_assert(!(Vs::kTilesBySequence || ...), "tile: this mask needs the rows of a sequence");
    return tile(TileRows{0, q_first, q_last, 0, 0}, kv_first, kv_last);
  }
  __device__ __forceinline__ Tile tile(const TileRows& rows, int kv_first, int kv_last) const {
    bool asks_keep;
    return tile(rows, kv_first, kv_last, asks_keep);
  }
  // asks_keep: of a partial tile, whether keep() may hide any of it; false where visible_run()
  // hides all that is hidden.
  __device__ __forceinline__ Tile tile(const TileRows& rows, int kv_first, int kv_last,
                                       bool& asks_keep) const {
    Tile all = Tile::full;
    asks_keep = false;
    (combine<Vs>(all, asks_keep, rows, kv_first, kv_last), ...);
    return all;
  }
  __device__ __forceinline__ void row_init(RowSum& sum, const Position& row) const {
    (get<Vs>().row_init(sum, row), ...);
  }
  __device__ __forceinline__ void row_finish(RowSum& sum, const Position& row) const {
    (get<Vs>().row_finish(sum, row), ...);
  }
  __device__ __forceinline__ float out(float o, const Position& row) const {
    ((o = Vs::kTransformsOutput ? get<Vs>().out(o, row) : o), ...);
    return o;
  }
  // The sum's maximum is that of a row's logits, see OnlineSoftmax::settle().
  __device__ __forceinline__ void take_maximum(const RowSum& sum, const Position& row) const {
    (get<Vs>().take_maximum(sum.max * kLn2, row), ...);
  }

 private:
  // Whether V is the first, or the last, of those that transform logits.
  template <class V>
  __device__ __forceinline__ static constexpr bool is_first() {
    bool found = false, is = false;
    ((is = is || (is_same<V, Vs> && Vs::kTransformsLogits && !found),
      found = found || Vs::kTransformsLogits),
     ...);
    return is;
  }
  template <class V>
  __device__ __forceinline__ static constexpr bool is_last() {
    bool is = false;
    ((is = Vs::kTransformsLogits ? is_same<V, Vs> : is), ...);
    return is;
  }
  template <class V, bool kNarrow>
  __device__ __forceinline__ float transform(float logit, const Position& at) const {
    if constexpr (!V::kTransformsLogits) return logit;
    if constexpr (!is_first<V>()) logit *= get<V>().factor_before();
    if constexpr (V::kNarrows && kNarrow) {
      logit = get<V>().narrow_logits(logit, at);
    } else if constexpr (V::kHasDistanceBias) {
      const int far =
          at.row_distance < 0.0f ? get<V>().far_distance(at) : -get<V>().far_distance(at);
      logit += get<V>().bias_at(at, kNarrow ? far : at.kv - at.q);
    } else {
      logit = get<V>().logits(logit, at);
    }
    if constexpr (!is_last<V>()) logit *= get<V>().factor_after();
    return logit;
  }
  template <class V, bool kNarrow>
  __device__ __forceinline__ void transform_two(Two<float>& logits, const Position& at,
                                                const Position& next) const {
    if constexpr (V::kTransformsLogits && V::kTakesTwo) {
      logits = get<V>().logits_of_two(logits, at);
    } else {
      logits = {transform<V, kNarrow>(logits.first, at),
                transform<V, kNarrow>(logits.second, next)};
    }
  }
  template <class V>
  __device__ __forceinline__ void limit_narrow(float& limit) const {
    if constexpr (V::kNarrows) limit = get<V>().narrow_limit();
  }
  template <class V>
  __device__ __forceinline__ void keep(Two<bool>& kept, const Position& at,
                                       const Position& next) const {
    if constexpr (V::kMasks && !V::kMasksByRange) {
      Two<bool> here;
      if constexpr (V::kTakesTwo) {
        here = get<V>().keep_two(at);
      } else {
        here = {get<V>().keep(at), get<V>().keep(next)};
      }
      kept = {kept.first && here.first, kept.second && here.second};
    }
  }
  template <class V>
  __device__ __forceinline__ void intersect(Range& range, const TileRows& rows) const {
    if constexpr (V::kMasks) range = intersection(range, get<V>().kv_range(rows));
  }
  template <class V>
  __device__ __forceinline__ void bind(Range& range, const TileRows& rows) const {
    if constexpr (!V::kRangeFollowsKeep) intersect<V>(range, rows);
  }
  template <class V, bool kShows = V::kMasksByRange>
  __device__ __forceinline__ void show(Range& range, const Position& row) const {
    if constexpr (V::kMasks && (V::kMasksByRange || kShows)) {
      range = intersection(range, get<V>().visible(row));
    }
  }
  template <class V>
  __device__ __forceinline__ void combine(Tile& all, bool& asks_keep, const TileRows& rows,
                                          int kv_first, int kv_last) const {
    if constexpr (V::kMasks) {
      Tile one;
      if constexpr (V::kTilesBySequence) {
        one = get<V>().tile(rows, kv_first, kv_last);
      } else {
        one = get<V>().tile(rows.q_first, rows.q_last, kv_first, kv_last);
      }
      if (one == Tile::skip || all == Tile::full) all = one;
      if constexpr (V::kMasksByRange) return;
      if (one != Tile::partial || asks_keep) return;
      if constexpr (V::kShowsRuns) {
        asks_keep = get<V>().asks_keep(rows, kv_first, kv_last);
      } else {
        asks_keep = true;
      }
    }
  }
};

}  // namespace kiln
