// The choices of the sm_90a kernels share this: which rows of their table a call may have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "jit/attention/problem.h"
#include "jit/attention/sm90_config.h"
#include "jit/op/arch.h"

namespace kiln {

inline constexpr int kLeastSplitKeys = 640;

inline const AttentionSm90Config& sm90_config_at(int row) {
  return attention_sm90_configs()[static_cast<std::size_t>(row)];
}

// The form of a query tile: whether CTAs share its keys, and, where none do, whether it may have
// rows of all heads that share a KV head.
struct Sm90Form {
  bool splits = false, grouped = false;
};

// Says whether tiles may have rows of several heads: where lengths differ, and no hook is asked
// about all rows of a tile as those of one head.
inline bool may_group_heads(const AttentionTraits& traits) {
  return traits.storage != Storage::dense && !traits.alibi && !tilts(traits) &&
         !traits.variant_has_distance_bias();
}

// Says whether a row's kernel has registers for cuts that the device makes. Three math warpgroups
// have none for code at every logit beside them. Where keys or values have up to 64 columns, those
// of windows and of flags of sequences spill 28 to 36 bytes.
inline bool has_registers_for_shares(const AttentionSm90Config& config,
                                     const AttentionTraits& traits, Work work) {
  if (traits.storage == Storage::dense || config.block_q <= 128) return true;
  const bool has_plain_mask = traits.mask == Mask::none || traits.mask == Mask::causal;
  const bool is_wide = std::min(traits.head_dim, traits.head_dim_v) > 64;
  return work == Work::light && (is_wide || has_plain_mask);
}

// Calls `use(row)` for the rows of the form among which calls choose, the first of which may admit
// some lengths only and the last of which admits all; stops where it returns true.
template <class Use>
void for_each_sm90_row(const AttentionTraits& traits, int arch, Sm90Form form, Use use) {
  const bool splits = form.splits;
  if (form.grouped && !may_group_heads(traits)) return;
  if (arch_table()[static_cast<std::size_t>(arch)].number != 90) return;
  if (!traits.aligned || traits.mask == Mask::tree || traits.spread) return;
  if (traits.has_quantized_output()) return;
  const AttentionFactors factors = traits.byte_queries            ? AttentionFactors::bytes
                                   : traits.has_quantized_cache() ? AttentionFactors::widened
                                                                  : AttentionFactors::halves;
  if (traits.has_quantized_cache() && (traits.head_dim % 16 != 0 || traits.head_dim_v % 16 != 0)) {
    return;
  }
  const bool has_mask = traits.mask != Mask::none || traits.variant_masks();
  const Masks masks = has_mask ? Masks::some : Masks::none;
  const Work work = work_for_sm90(traits);
  const bool is_paged = traits.storage == Storage::paged;
  const auto serves = [&](const AttentionSm90Config& config) {
    if (config.pages == (is_paged ? Pages::none : Pages::only)) return false;
    if (config.windows && traits.mask != Mask::window && !traits.variant_masks()) return false;
    if (traits.storage == Storage::dense && config.by_cost) return false;
    if (splits && !has_registers_for_shares(config, traits, work)) return false;
    return splits == config.splits && form.grouped == config.grouped && factors == config.factors &&
           traits.head_dim >= config.min_dim && traits.head_dim <= config.max_dim &&
           traits.head_dim_v <= config.max_dim_v && work <= config.work &&
           (config.masks == Masks::any || config.masks == masks);
  };
  const auto configs = attention_sm90_configs();
  for (std::size_t row = 0; row < configs.size(); ++row) {
    if (!serves(configs[row])) continue;
    const bool admits_all = most_keys(configs[row], traits) == 0 && !configs[row].by_cost &&
                            configs[row].unless_fills == 0 && configs[row].min_keys == 0;
    if (use(static_cast<int>(row)) || admits_all) return;
  }
}

// Says whether a mask leaves the queries fewer keys than there are.
inline bool is_narrow_window(const AttentionProblem& problem) {
  return problem.keys < problem.len_kv;
}

inline std::int64_t tiles_of(std::int64_t length, std::int64_t tile) {
  return (length + tile - 1) / tile;
}

// Beside a launch of sm_90a of whole tiles, sequences of up to so many rows of all heads that share
// a KV head take less time with the kernel for decoding, and beside one whose CTAs share keys.
constexpr int kDecodedRows = 64, kDecodedRowsBesideShares = 16;

// Query heads of a KV head.
inline std::int64_t group_of(const AttentionProblem& problem) {
  return problem.heads / std::max(problem.heads_kv, 1);
}

// The host knows this of a call's sequences: one may have as many queries as the bound says. The
// others have so many on average, rounded up.
inline std::int64_t queries_of_others(const AttentionProblem& problem) {
  if (problem.batch < 2) return 0;
  return tiles_of(std::max<std::int64_t>(problem.tokens - problem.len_q, 0), problem.batch - 1);
}
inline std::int64_t rows_of_others(const AttentionProblem& problem) {
  return queries_of_others(problem) * group_of(problem);
}

inline AttentionLengths lengths_of(const AttentionProblem& problem) {
  return {problem.len_q, problem.keys, is_narrow_window(problem)};
}

// -1: none.
inline int first_sm90_row(const AttentionTraits& traits, int arch, const AttentionLengths& lengths,
                          Sm90Form form = {}) {
  int first = -1;
  for_each_sm90_row(traits, arch, form, [&](int row) {
    if (!admits(sm90_config_at(row), traits, lengths)) return false;
    first = row;
    return true;
  });
  return first;
}

// Says whether a tensor map admits the stride of a dimension of `size` entries: none is 0 or
// negative.
inline bool is_map_stride(long long stride, long long size, int element_bytes) {
  constexpr long long kMost = 1LL << 40;  // bytes
  return size <= 1 || (stride > 0 && stride < kMost / element_bytes);
}

// The sizes of the dimensions of a tensor [entries, rows, heads, ..].
struct RowsShape {
  int entries, rows, heads;
};
inline bool is_map(const RowsShape& shape, long long entry, long long row, long long head,
                   int element_bytes) {
  return is_map_stride(entry, shape.entries, element_bytes) &&
         is_map_stride(row, shape.rows, element_bytes) &&
         is_map_stride(head, shape.heads, element_bytes);
}

}  // namespace kiln
