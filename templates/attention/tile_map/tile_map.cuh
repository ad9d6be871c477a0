// A map of what attention's kernels decide of each tile of keys, beside what the mask shows of its
// pairs: a kernel for the emulated device alone, from which `plot` of a variant draws.
//
// The walk and the kinds of tiles come from the functions that the kernels call.
#pragma once
#include "/kiln/attention/tile_map/params.h"
#include "/kiln/attention/tiles.cuh"

namespace kiln {

template <class Variant>
struct TileMapArgs : TileMapParams, Variant {
  __device__ __forceinline__ const TileMapParams& params() const { return *this; }
  __device__ __forceinline__ const Variant& variant() const { return *this; }
};

// A query of one head, and the keys that its mask shows.
template <class Variant>
class MappedRow {
 public:
  __device__ __forceinline__ MappedRow(const Variant& variant, const TileMapParams& p, int row)
      : variant_(variant),
        at_{p.b, p.h, p.h_kv, row, row + p.len_kv - p.len_q, 0, p.len_q, p.len_kv, 0.0f} {
    at_.distance = to_float(at_.q);
    if constexpr (Variant::kMasksByRange) shown_ = variant.visible(at_);
  }

  __device__ __forceinline__ bool shows(int kv) const {
    if constexpr (Variant::kMasksByRange) {
      if (kv < shown_.begin || kv >= shown_.end) return false;
    }
    if constexpr (Variant::kKeeps && Variant::kTakesTwo) {
      const int even = kv & ~1;
      const Two<bool> kept = variant_.keep_two(at(even), at(min(even + 1, at_.len_kv - 1)));
      return kv == even ? kept.first : kept.second;
    } else if constexpr (Variant::kKeeps) {
      return variant_.keep(at(kv));
    }
    return true;
  }

 private:
  __device__ __forceinline__ Position at(int kv) const {
    Position at = at_;
    at.kv = kv, at.distance = to_float(at_.q - kv);
    return at;
  }

  const Variant& variant_;
  Position at_;
  Range shown_{0, 0};
};

// What becomes of `own` rows of a query tile and the keys from `first` on, where the `walked` rows
// of the whole tile are walked together.
template <class Config, class Variant, class Walk>
__device__ __forceinline__ Tile decision(const Walk& walk, const TileRows& walked,
                                         const TileRows& own, int first) {
  const Range range = walk.range();
  if (first >= range.end || first + Config::kBlockKv <= range.begin) return Tile::skip;
  // As TileIterator::next(), with which the portable kernel walks.
  if constexpr (Config::kPortable && Variant::kKeeps) {
    if (walk.kind(first, walked) == Tile::skip) return Tile::skip;
  }
  return walk.kind(first, own);
}

// A block has a row of the map and 32 tiles of keys, one for each thread.
template <class Config, class Variant>
__device__ __forceinline__ void map_tiles(const TileMapArgs<Variant>& args) {
  const TileMapParams& p = args.params();
  const int key_tile = static_cast<int>(blockIdx.y * 32 + threadIdx.x);
  if (key_tile >= p.key_tiles) return;
  const TileMapRow row = p.rows[blockIdx.x];
  const int shift = p.len_kv - p.len_q, first = key_tile * Config::kBlockKv;
  const int h = Config::kPacked ? -1 : p.h, h_kv = p.h_kv;
  const auto rows_of = [&](int first_query, int last_query) {
    return TileRows{p.b, first_query + shift, last_query + shift, p.len_q, p.len_kv, h, h_kv};
  };
  using Walk = TileIterator<Config::kBlockKv, 1, Variant>;
  const TileRows walked = rows_of(row.walk_first, row.walk_last);
  const Walk walk(args.variant(), walked, 0, 1, 0);
  int shown = 0;
#pragma unroll 1
  for (int query = row.first; query <= row.last; ++query) {
    const MappedRow<Variant> mapped(args.variant(), p, query);
#pragma unroll 1
    for (int kv = first; kv < min(first + Config::kBlockKv, p.len_kv); ++kv) {
      shown += mapped.shows(kv) ? 1 : 0;
    }
  }
  const i64 at = static_cast<i64>(blockIdx.x) * p.key_tiles + key_tile;
  // The portable kernel's warps ask about rows past the end where no mask would read them.
  constexpr bool kExact = !Config::kPortable || Config::kPacked || Variant::kKeeps;
  const int last = kExact ? row.last : row.first + Config::kGroup - 1;
  const Tile kind = decision<Config, Variant>(walk, walked, rows_of(row.first, last), first);
  p.kinds[at] = static_cast<int>(kind);
  p.shown[at] = shown;
}

}  // namespace kiln
