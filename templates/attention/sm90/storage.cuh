// The ways in which the rows of a call are stored: what a kernel's Config names as its Storage.
#pragma once
#include "/kiln/attention/sm90/drawn_schedule.cuh"
#include "/kiln/attention/sm90/schedule.cuh"
#include "/kiln/attention/sm90/sequence_schedule.cuh"
#include "/kiln/attention/sm90/shape.cuh"
#include "/kiln/attention/sm90/shared_pieces.cuh"

namespace kiln {

// The kernel's parameters: tensor maps, then the argument block of every attention kernel.
template <class UserVariant>
struct AttentionSm90Args : AttentionMaps<TensorMap> {
  using Variant = UserVariant;
  AttentionArgs<Variant> call;
};
template <class UserVariant>
struct AttentionSm90VarlenArgs : AttentionVarlenMaps<TensorMap> {
  using Variant = UserVariant;
  AttentionVarlenArgs<Variant> call;
};

// All sequences have the same lengths.
struct DenseStorage {
  using Tile = QueryTile;
  template <class Config, class Variant>
  using Tiles = conditional<Variant::kSkipsByTensors && !Config::kSplits, DrawnTiles<Config>,
                            QueryTiles<Config>>;
  // Behind the rows of a sequence, the copy engine fills boxes with zeros.
  static constexpr bool kEndsInZeros = true;
  static constexpr bool kPaged = false;
  static constexpr bool kHasShares = false;
  static constexpr bool kGroupsHeads = false;
  static constexpr bool kPrecedesOthers = false;  // launches of the same call
};

// Each sequence has its own, of queries that are packed or padded. kShares: CTAs may share the keys
// of a query tile. kGroups: a tile may have queries of all heads that share a KV head.
template <bool kInPages, bool kShares, bool kGroups>
struct SequenceStorage {
  using WholeTile = conditional<kGroups, GroupedTile, SequenceTile>;
  using Tile = conditional<kShares, SequencePieceTile<WholeTile>, WholeTile>;
  template <class Config, class Variant>
  using Tiles = conditional<kShares, SharedPieces<Config, Variant>, SequenceTiles<Config>>;
  static constexpr bool kEndsInZeros = false;
  static constexpr bool kPaged = kInPages;
  static constexpr bool kHasShares = kShares;
  static constexpr bool kGroupsHeads = kGroups;
  static constexpr bool kPrecedesOthers = true;
};
using RaggedStorage = SequenceStorage<false, false, false>;
using PagedStorage = SequenceStorage<true, false, false>;
using GroupedRaggedStorage = SequenceStorage<false, false, true>;
using GroupedPagedStorage = SequenceStorage<true, false, true>;
using SharedRaggedStorage = SequenceStorage<false, true, true>;
using SharedPagedStorage = SequenceStorage<true, true, true>;

}  // namespace kiln
