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
#pragma once
#include "/kiln/attention/sm90/schedule.cuh"
#include "/kiln/attention/sm90/shape.cuh"
#include "/kiln/attention/tiles.cuh"

namespace kiln {

// 32 tiles of keys, of which bit i is the one that starts at kv_first + i * kBlockKv.
struct WalkStep {
  u32 visit;  // tiles that any math group computes
  u32 flags;
  int kv_first;
  int b, h, h_kv, first_row, split;  // the tile of queries
  // For each math group's own rows: tiles that it computes, and those of them that need their mask.
  struct Rows {
    u32 visit, partial;
  } rows[3];

  static constexpr u32 kLast = 1;  // the query tile's last step
  static constexpr u32 kEnd = 2;   // no query tile follows; there is nothing else in this step
};
static_assert(sizeof(WalkStep) <= kAttentionWalkBytes, "attention sm_90a: a step of the walk");

// Answers which of 32 tiles of keys the rows of each math group see. Other sources of this answer,
// such as lists of intervals, have the same function.
template <class Config, class Variant>
class TileClassifier {
  using Shape = AttentionSm90Shape<Config>;

 public:
  __device__ __forceinline__ TileClassifier(const Variant& variant, const QueryTile& tile)
      : tile_(tile),
        walk_(variant, tile.rows_from(tile.first_row, Shape::kBlockQ), tile.split,
              Config::kSplits ? tile.p.splits : 1, 0) {}

  __device__ __forceinline__ Range range() const { return walk_.range(); }

  // Called by a whole warp: fills in the step's bits from its kv_first on.
  __device__ __forceinline__ void classify(WalkStep& step) const {
    const int first = step.kv_first + static_cast<int>(threadIdx.x % 32) * Shape::kBlockKv;
    step.visit = 0;
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group) {
      const int row = tile_.first_row + group * 64;
      Tile kind = Tile::skip;
      // The range of a split without keys begins and ends behind all keys, perhaps within a tile.
      if (row < tile_.p.len_q && max(first, walk_.range().begin) < walk_.range().end) {
        kind = walk_.kind(first, tile_.rows_from(row, 64));
      }
      step.rows[group].visit = __ballot_sync(~0u, kind != Tile::skip);
      step.rows[group].partial = __ballot_sync(~0u, kind == Tile::partial);
      step.visit |= step.rows[group].visit;
    }
  }

 private:
  const QueryTile& tile_;
  TileIterator<Shape::kBlockKv, 1, Variant> walk_;
};

// Publishes the steps of all query tiles of this CTA, then the end. Called by one whole warp.
template <class Config, class Variant>
__device__ __forceinline__ void publish_walk(const AttentionSm90Args<Variant>& args) {
  using Shape = AttentionSm90Shape<Config>;
  constexpr int kKeys = 32 * Shape::kBlockKv;
  const auto ring = Shape::walk_ring();
  auto position = ring.producer();
  const auto publish = [&](const WalkStep& step) {
    wait(ring.empty(position.stage), position.parity);
    if (threadIdx.x % 32 == 0) {
      const u32 at = Shape::walk(position.stage);
      const auto word = [](int number) { return static_cast<u32>(number); };
      store_shared_16(at, {step.visit, step.flags, word(step.kv_first), word(step.b)});
      store_shared_16(at + 16,
                      {word(step.h), word(step.h_kv), word(step.first_row), word(step.split)});
      store_shared_16(at + 32, {step.rows[0].visit, step.rows[0].partial, step.rows[1].visit,
                                step.rows[1].partial});
      store_shared_16(at + 48, {step.rows[2].visit, step.rows[2].partial, 0, 0});
      arrive(ring.full(position.stage));
    }
    __syncwarp();
    position.advance();
  };
  QueryTiles<Shape::kBlockQ, Config::kSplits> tiles(args.call.params());
#pragma unroll 1
  for (; tiles.has_tile(); tiles.advance()) {
    const QueryTile tile(args.call.params(), tiles.tile());
    const TileClassifier<Config, Variant> classifier(args.call.variant(), tile);
    const Range range = classifier.range();
    WalkStep step{0,
                  0,
                  range.begin / Shape::kBlockKv * Shape::kBlockKv,
                  tile.b,
                  tile.h,
                  tile.h_kv,
                  tile.first_row,
                  tile.split,
                  {}};
#pragma unroll 1
    while (step.flags == 0) {
      classifier.classify(step);
      if (step.kv_first + kKeys >= range.end) step.flags = WalkStep::kLast;
      publish(step);
      step.kv_first += kKeys;
    }
  }
  publish({0, WalkStep::kEnd | WalkStep::kLast, 0, 0, 0, 0, 0, 0, {}});
}

// A warp's view of the walk. All its lanes call together. `group` is the math group whose rows the
// warp computes, or 0 for a warp that is interested in all tiles.
template <class Config>
class WalkReader {
  using Shape = AttentionSm90Shape<Config>;

 public:
  struct KeyTile {
    // Words instead of bools: ptxas keeps what is 16 bits wide out of uniform registers, and then
    // everything that depends on it.
    int kv_first;
    u32 exists;
    u32 seen, partial;  // by the group's rows
  };

  __device__ __forceinline__ explicit WalkReader(int group) : group_(group) {}

  // Goes to the next query tile; false after the last. Requires: next() has returned no tile.
  __device__ __forceinline__ bool next_query_tile() {
    read();
    return (flags_ & WalkStep::kEnd) == 0;
  }
  __device__ __forceinline__ const TilePlace& place() const { return place_; }

  __device__ __forceinline__ KeyTile next() {
    while (visit_ == 0) {
      if (flags_ & WalkStep::kLast) return {0, 0, 0, 0};
      read();
    }
    const u32 bit = visit_ & -visit_;
    visit_ ^= bit;
    return {kv_first_ + (31 - __clz(static_cast<int>(bit))) * Shape::kBlockKv, bit,
            rows_.visit & bit, rows_.partial & bit};
  }
  // Whether next() may still return a tile that the group sees.
  __device__ __forceinline__ bool may_see_more() const {
    return (flags_ & WalkStep::kLast) == 0 || (visit_ & rows_.visit) != 0;
  }

 private:
  // The shuffle makes the values warp-uniform to the compiler, which keeps loops over them uniform.
  __device__ __forceinline__ void read() {
    const auto ring = Shape::walk_ring();
    const auto position = ring.consumer_after(steps_++);
    wait(ring.full(position.stage), position.parity);
    const u32 at = Shape::walk(position.stage);
    const auto word = [&](u32 i) { return __shfl_sync(~0u, load_word(at + i * 4), 0); };
    const auto number = [&](u32 i) { return static_cast<int>(word(i)); };
    visit_ = word(0), flags_ = word(1);
    kv_first_ = number(2), place_ = {number(3), number(4), number(5), number(6), number(7)};
    rows_ = {word(8 + 2 * group_), word(9 + 2 * group_)};
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(ring.empty(position.stage));
  }

  int group_;
  u32 visit_, flags_;
  int kv_first_;
  TilePlace place_;  // of the query tile
  WalkStep::Rows rows_;
  u32 steps_ = 0;  // read so far
};

}  // namespace kiln
