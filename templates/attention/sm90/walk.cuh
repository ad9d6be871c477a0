// The walk over the tiles of keys, evaluated once for all roles of a CTA.
//
// The scheduler warp asks the variant which tiles of keys a tile of queries sees: each lane
// classifies one of 32 tiles. It publishes the answers as bits, through a ring in shared memory:
//
//   scheduler warp:  for each query tile, for each 32 tiles of keys: {visit, partial} --ring-->
//                      the warp that copies, and all math warps
//
// So a variant's code for tiles runs in one warp, and any mask costs the others what none costs. A
// math group computes only the tiles that its own 64 rows see.
//
// Tiles are visited from the first key on or, where logits are tilted towards the last key, from
// the last one back: a row's maximum is then found in its first tiles, and need not grow at each.
#pragma once
#include "/kiln/attention/sm90/shape.cuh"
#include "/kiln/attention/sm90/storage.cuh"
#include "/kiln/attention/tiles.cuh"

namespace kiln {

// 32 tiles of keys, of which bit i is the one that starts at kv_first + i * kBlockKv.
struct WalkStep {
  u32 visit;  // tiles that any math group computes
  u32 flags;
  // For each math group's own rows: tiles that it computes, those of them that need their mask, and
  // of these, where the kernel asks for it, those that need keep().
  struct Rows {
    u32 visit, partial, keeps;
  } rows[3];
  int kv_first;

  static constexpr u32 kLast = 1;  // the query tile's last step
  static constexpr u32 kEnd = 2;   // no query tile follows; there is nothing else in this step
  // The first step of a query tile is followed by its place, word by word.
  static constexpr u32 kPlaceAt = 48;

  // Returns the step with none of its tiles but those of the mask.
  __device__ __forceinline__ WalkStep among(u32 tiles) const {
    WalkStep step = *this;
    step.visit &= tiles;
#pragma unroll
    for (Rows& of_group : step.rows) of_group.visit &= tiles;
    return step;
  }
};

// Returns the last few of many tiles that are visited in a step.
template <bool kFromLast>
__device__ __forceinline__ u32 last_tiles(u32 visit) {
  return kFromLast ? 0xfu << (__ffs(visit) - 1) : ~0u << (28 - __clz(visit));
}

// Whether the walk tells keep()'s partial tiles from those of ranges: not where code at every logit
// needs the registers.
template <class Config, class Variant>
inline constexpr bool kTellsKeep =
    Variant::kSkipsByTensors && (!Variant::kTransformsLogits || Config::kTilts);

// Answers which of 32 tiles of keys the rows of each math group see. Other sources of this answer,
// such as lists of intervals, have the same function.
template <class Config, class Variant>
class TileClassifier {
  using Shape = AttentionSm90Shape<Config>;
  using QueryTile = typename Config::Storage::Tile;

 public:
  // `taken`: what the schedule has returned.
  template <class Taken>
  __device__ __forceinline__ TileClassifier(const Variant& variant, const QueryTile& tile,
                                            const Taken& taken)
      : tile_(tile), walk_(walk_of(variant, tile, taken)) {}

  // The first key of the first tile that may be visited, and a key of the last one.
  struct Ends {
    int first, last;
  };
  // Called by a whole warp.
  __device__ __forceinline__ Ends ends() const {
    const Range range = walk_.range();
    const int first = range.begin / Shape::kBlockKv * Shape::kBlockKv;
    const Ends all{first, first + max(range.end - 1 - first, 0)};
    if constexpr (Variant::kSearchesKeys) {
      const int tiles = (all.last - first) / Shape::kBlockKv + 1;
      if (tiles > 32) return search(all, ceil_div(tiles, 32) * Shape::kBlockKv);
    }
    return all;
  }

  // Called by a whole warp: fills in the step's bits from its kv_first on.
  __device__ __forceinline__ void classify(WalkStep& step) const {
    const int first = step.kv_first + static_cast<int>(threadIdx.x % 32) * Shape::kBlockKv;
    step.visit = 0;
    // Not unrolled, because a variant's code for tiles may be long.
#pragma unroll 1
    for (int group = 0; group < Shape::kGroups; ++group) {
      const int row = group * 64;
      Tile kind = Tile::skip;
      bool asks_keep = false;
      // The range of a split without keys begins and ends behind all keys, perhaps within a tile.
      if (tile_.has_row(row) && max(first, walk_.range().begin) < walk_.range().end) {
        kind = walk_.kind(first, tile_.rows(row, 64), asks_keep);
      }
      const u32 visit = __ballot_sync(~0u, kind != Tile::skip);
      const u32 partial = __ballot_sync(~0u, kind == Tile::partial);
      u32 keeps = 0;
      if constexpr (kTellsKeep<Config, Variant>) keeps = __ballot_sync(~0u, asks_keep);
      step.visit |= visit;
      // Indexed by constants alone, the step stays in registers.
#pragma unroll
      for (int i = 0; i < Shape::kGroups; ++i) {
        if (i == group) step.rows[i] = {visit, partial, keeps};
      }
    }
  }

 private:
  // Each lane asks about `keys` keys for all rows. Nothing is visible before the first lane that
  // finds any, nor behind the last one.
  __device__ __forceinline__ Ends search(const Ends& all, int keys) const {
    const int first = all.first + static_cast<int>(threadIdx.x % 32) * keys;
    const int begin = max(first, walk_.range().begin), last = min(first + keys - 1, all.last);
    const u32 found = __ballot_sync(~0u, begin <= last && walk_.may_see(begin, last));
    if (found == 0) return {all.first, all.first};
    return {all.first + (__ffs(found) - 1) * keys,
            min(all.first + (32 - __clz(found)) * keys - 1, all.last)};
  }
  using Walk = TileIterator<Shape::kBlockKv, 1, Variant>;
  template <class Taken>
  __device__ __forceinline__ static Walk walk_of(const Variant& variant, const QueryTile& tile,
                                                 const Taken& taken) {
    const TileRows rows = tile.rows(0, Shape::kBlockQ);
    if constexpr (Config::Storage::kHasShares) {
      return {variant, rows, taken.steps, 0};
    } else if constexpr (Config::kSplits) {
      return {variant, rows, tile.split(), tile.splits(), 0};
    } else {
      return {variant, rows, 0, 1, 0};
    }
  }

  const QueryTile& tile_;
  Walk walk_;
};

template <class Place>
__device__ __forceinline__ void store_place(u32 at, const Place& place) {
  constexpr int kWords = sizeof(Place) / 4;
  static_assert(WalkStep::kPlaceAt + kWords * 4 <= kAttentionWalkBytes,
                "attention sm_90a: a step of the walk");
  const u32* const words = reinterpret_cast<const u32*>(&place);
  const auto word = [&](int i) { return i < kWords ? words[i] : 0; };
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    store_shared_16(at + i * 4, {word(i), word(i + 1), word(i + 2), word(i + 3)});
  }
}

// Publishes the steps of all query tiles that the schedule gives this CTA, then the end. Called by
// one whole warp.
template <class Config, class Args, class Tiles>
__device__ __forceinline__ void publish_tiles(const Args& args, Tiles tiles) {
  using Shape = AttentionSm90Shape<Config>;
  using Tile = typename Config::Storage::Tile;
  constexpr int kKeys = 32 * Shape::kBlockKv;
  const bool leads = threadIdx.x % 32 == 0;
  const auto ring = Shape::walk_ring();
  u32 steps = 0;  // published so far
  const auto stage_at = [&](u32 step) { return ring.producer_after(step); };
  const auto begin = [&] {
    const auto at = stage_at(steps);
    wait(ring.empty(at.stage), at.parity);
  };
  const auto publish_place = [&](const typename Tile::Place& place) {
    begin();
    if (leads) store_place(Shape::walk(stage_at(steps).stage) + WalkStep::kPlaceAt, place);
  };
  const auto publish = [&](const WalkStep& step) {
    if (leads) {
      const u32 at = Shape::walk(stage_at(steps).stage);
      store_shared_16(
          at, {step.visit, step.flags, static_cast<u32>(step.kv_first), step.rows[0].visit});
      store_shared_16(at + 16, {step.rows[0].partial, step.rows[1].visit, step.rows[1].partial,
                                step.rows[2].visit});
      store_shared_16(at + 32, {step.rows[2].partial, step.rows[0].keeps, step.rows[1].keeps,
                                step.rows[2].keeps});
      arrive(ring.full(stage_at(steps).stage));
    }
    __syncwarp();
    ++steps;
  };
#pragma unroll 1
  for (; tiles.has_tile(); tiles.advance()) {
    const auto taken = tiles.tile();
    const Tile tile(args.call.params(), taken);
    publish_place(tile);
    const TileClassifier<Config, typename Args::Variant> classifier(args.call.variant(), tile,
                                                                    taken);
    const auto ends = classifier.ends();
    const int first = ends.first, last = first + (ends.last - first) / kKeys * kKeys;
    WalkStep step{0, 0, {}, Config::kTilts ? last : first};
    bool is_short = false;
#pragma unroll 1
    while (true) {
      classifier.classify(step);
      if (step.kv_first == (Config::kTilts ? first : last)) step.flags = WalkStep::kLast;
      // A step without tiles is left out. V of a tile is copied when the next one is known, and
      // warps that wait for V hold their step: more of these between two tiles than the ring has
      // stages would be a deadlock.
      const bool is_published = step.visit != 0 || step.flags != 0;
      if constexpr (Tiles::kDraws) {
        // The last tiles are a step of their own: when it has been read, another query tile is
        // drawn.
        constexpr int kShort = 8;  // tiles of keys
        is_short = first == last && __popc(step.visit) < kShort;
        if (step.flags != 0 && __popc(step.visit) > kShort) {
          const u32 last_few = last_tiles<Config::kTilts>(step.visit);
          step.flags = 0;
          publish(step.among(~last_few));
          begin();
          step = step.among(last_few);
          step.flags = WalkStep::kLast;
        }
      }
      if (is_published) publish(step);
      if (step.flags != 0) break;
      step.kv_first += Config::kTilts ? -kKeys : kKeys;
      if (is_published) begin();
    }
    if constexpr (Tiles::kDraws) {
      // A tile is drawn when the end of the one before it has begun, lest CTAs take more than their
      // share. A short one would end before the next one's keys arrive: another is then drawn
      // ahead.
      const u32 ahead = is_short ? 2 : 1;
      if (steps >= ahead) {
        const auto begun = stage_at(steps - ahead);
        wait(ring.empty(begun.stage), begun.parity ^ 1);
      }
    }
  }
  publish_place({});
  publish({0, WalkStep::kEnd | WalkStep::kLast, {}, 0});
}

// The same with the schedule that the call has.
template <class Config, class Args>
__device__ __forceinline__ void publish_walk(const Args& args) {
  using Variant = typename Args::Variant;
  using Tiles = typename Config::Storage::template Tiles<Config, Variant>;
  const auto& params = args.call.params();
  if constexpr (Config::Storage::kHasShares) {
    publish_tiles<Config>(args, Tiles(params, args.call.variant()));
  } else {
    publish_tiles<Config>(args, Tiles(params));
  }
}

// A warp's view of the walk. All its lanes call together. `group` is the math group whose rows the
// warp computes, or 0 for a warp that is interested in all tiles. kReadsKeeps: KeyTile::keeps is
// set.
template <class Config, bool kReadsKeeps = false>
class WalkReader {
  using Shape = AttentionSm90Shape<Config>;
  using Place = typename Config::Storage::Tile::Place;

 public:
  struct KeyTile {
    // Words instead of bools: ptxas keeps what is 16 bits wide out of uniform registers, and then
    // everything that depends on it.
    int kv_first;
    u32 exists;
    u32 seen, partial, keeps;  // by the group's rows
  };

  __device__ __forceinline__ explicit WalkReader(int group) : group_(group) {}

  // Goes to the next query tile; false after the last. Requires: next() has returned no tile.
  __device__ __forceinline__ bool next_query_tile() {
    read<true>();
    return (flags_ & WalkStep::kEnd) == 0;
  }
  __device__ __forceinline__ const Place& place() const { return place_; }

  __device__ __forceinline__ KeyTile next() {
    while (visit_ == 0) {
      if (flags_ & WalkStep::kLast) return {0, 0, 0, 0, 0};
      read<false>();
    }
    const u32 bit =
        Config::kTilts ? 1u << (31 - __clz(static_cast<int>(visit_))) : visit_ & -visit_;
    visit_ ^= bit;
    return {kv_first_ + (31 - __clz(static_cast<int>(bit))) * Shape::kBlockKv, bit,
            rows_.visit & bit, rows_.partial & bit, rows_.keeps & bit};
  }
  // Passes over all tiles of the query tile.
  __device__ __forceinline__ void skip_keys() {
    while ((flags_ & WalkStep::kLast) == 0) read<false>();
    visit_ = 0;
  }
  // Whether next() may still return a tile that the group sees.
  __device__ __forceinline__ bool may_see_more() const {
    return (flags_ & WalkStep::kLast) == 0 || (visit_ & rows_.visit) != 0;
  }

 private:
  // The shuffle makes the values warp-uniform to the compiler, which keeps loops over them uniform.
  template <bool kFirst>
  __device__ __forceinline__ void read() {
    const auto ring = Shape::walk_ring();
    const auto position = ring.consumer_after(steps_++);
    wait_as_warp(ring.full(position.stage), position.parity);
    const u32 at = Shape::walk(position.stage);
    const auto word = [&](u32 i) { return __shfl_sync(~0u, load_word(at + i * 4), 0); };
    visit_ = word(0), flags_ = word(1), kv_first_ = static_cast<int>(word(2));
    rows_.visit = word(3 + 2 * group_), rows_.partial = word(4 + 2 * group_);
    if constexpr (kReadsKeeps) rows_.keeps = word(9 + group_);
    if constexpr (kFirst) {
#pragma unroll
      for (u32 i = 0; i < sizeof(Place) / 4; ++i) {
        reinterpret_cast<u32*>(&place_)[i] = word(WalkStep::kPlaceAt / 4 + i);
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(ring.empty(position.stage));
  }

  int group_;
  u32 visit_, flags_;
  int kv_first_;
  Place place_;  // of the query tile
  WalkStep::Rows rows_;
  u32 steps_ = 0;  // read so far
};

}  // namespace kiln
