// The ways in which the rows of a call are stored: what a kernel's Config names as its Storage.
#pragma once
#include "/kiln/attention/sm90/drawn_schedule.cuh"
#include "/kiln/attention/sm90/schedule.cuh"
#include "/kiln/attention/sm90/sequence_schedule.cuh"

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
};

// Each sequence has its own, of queries that are packed or padded.
template <bool kInPages>
struct SequenceStorage {
  using Tile = SequenceTile;
  template <class Config, class Variant>
  using Tiles = SequenceTiles<Config>;
  static constexpr bool kEndsInZeros = false;
  static constexpr bool kPaged = kInPages;
};
using RaggedStorage = SequenceStorage<false>;
using PagedStorage = SequenceStorage<true>;

}  // namespace kiln
