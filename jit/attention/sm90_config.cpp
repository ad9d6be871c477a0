#include "jit/attention/sm90_config.h"

#include <algorithm>

#include "jit/attention/traits.h"

namespace kiln {
namespace {

// While one warpgroup computes logits and exponents, another's products should begin. Left to
// itself, ptxas has warps run through up to 64 such instructions, or yield at every second
// addition. Where gains_by_yields(), calls take 0.94 to 1.00 of the time on an H200:
// docs/performance/yields.md.
constexpr YieldRule kYields[] = {{YieldKind::multiply_add, 2},
                                 {YieldKind::multiply, 2},
                                 {YieldKind::add, 4},
                                 {YieldKind::uniform, 1}};

// Says whether the tensor cores leave time unfilled. Other calls took 0.985 to 1.02 of the time,
// and 0.975 to 1.014 where warps read a mask.
bool gains_by_yields(const AttentionTraits& t) {
  if (t.attn_mask != DType::none) return false;
  const int dim = std::max(t.head_dim, t.head_dim_v);
  return dim <= 112 || (t.byte_queries && dim <= 128) || work_for_sm90(t) != Work::light;
}

}  // namespace

bool tilts(const AttentionTraits& traits) {
  if (traits.softcap || traits.has_scales()) return false;
  if (traits.attn_mask != DType::none && traits.attn_mask != DType::boolean) return false;
  const bool of_past = traits.mask == Mask::causal;
  if (traits.alibi && !of_past) return false;
  if (!traits.has_variant()) return traits.alibi;
  if (traits.variant_tilts()) return of_past || !traits.variant_tilts_past();
  return traits.alibi && traits.variant_keeps_logits();
}

bool only_masks_read(const AttentionTraits& traits) {
  // Where all tiles are masked, wide heads are up to 8 % faster with the tiles of heavier code.
  const bool is_wide = std::max(traits.head_dim, traits.head_dim_v) > 64;
  if (is_wide && !traits.variant_fills_tiles()) return false;
  const bool changes_logits = (traits.alibi || traits.variant_tilts()) && !tilts(traits);
  const bool is_biased = traits.variant_has_distance_bias() && traits.variant_masks();
  return traits.variant_reads_tiles() && (traits.variant_masks_alone() || is_biased) &&
         !traits.softcap && !changes_logits && traits.attn_mask == DType::none &&
         traits.storage == Storage::dense;
}

Work work_for_sm90(AttentionTraits traits) {
  if (tilts(traits)) traits.alibi = false;  // the tensor cores add it
  if (!traits.has_variant() || traits.attn_mask != DType::none) return work_of(traits);
  if (traits.variant_has_distance_bias() && !traits.softcap && !traits.alibi) {
    if (traits.head_dim > 64) return Work::medium;
    return traits.variant_masks() ? Work::heavy : Work::light;
  }
  if (only_masks_read(traits)) return Work::light;
  if (traits.variant_indexes_by_key()) return work_of(traits);
  // Three math warpgroups leave registers for code that reads nothing at a key.
  if (!traits.variant_bounds_rows()) return Work::medium;
  if (traits.variant_tilts() && !tilts(traits)) return Work::medium;
  AttentionTraits built_in = traits;
  built_in.variant = {};
  return work_of(built_in);
}

int shared_bytes(const AttentionSm90Config& config, const AttentionTraits& traits) {
  return attention_sm90_shared_bytes(traits.head_dim, traits.head_dim_v, config.block_q,
                                     config.block_kv, config.stages, config.q_stages,
                                     stages_output(config, traits), config.factors, tilts(traits));
}

int most_keys(const AttentionSm90Config& config, const AttentionTraits& traits) {
  const Blocks blocks = !traits.variant_reads_blocks()    ? Blocks::none
                        : traits.variant_indexes_by_key() ? Blocks::read
                                                          : Blocks::any;
  if (only_masks_read(traits) && blocks != Blocks::none && config.blocks >= blocks) return 0;
  return only_masks_read(traits) ? config.max_keys_read : config.max_keys;
}

bool serves_keys(const AttentionSm90Config& config, const AttentionLengths& lengths) {
  const int least =
      lengths.is_narrow ? std::max(config.min_keys, config.min_window) : config.min_keys;
  return lengths.keys >= least;
}

bool admits(const AttentionSm90Config& config, const AttentionTraits& traits,
            const AttentionLengths& lengths) {
  // Windows were measured from 1000 queries on, documents with windows not at all.
  const bool is_read = only_masks_read(traits);
  const bool is_window = lengths.is_narrow && !is_read && lengths.queries >= 4 * config.block_q;
  if (config.windows && !is_window && !(config.reads && is_read)) return false;
  const int most = most_keys(config, traits);
  if (most != 0 && lengths.keys > most) return false;
  if (!serves_keys(config, lengths)) return false;
  const auto padded = [&](std::int64_t rows) { return (lengths.queries + rows - 1) / rows * rows; };
  const bool is_even = traits.storage == Storage::dense && !lengths.is_narrow && !is_read;
  if (config.unless_fits != 0 && is_even && lengths.queries > 512 &&
      padded(config.unless_fits) <= padded(config.block_q)) {
    return false;
  }
  const int fills = config.unless_fills;
  return fills == 0 || lengths.queries * 100 < padded(fills) * 95;
}

int thread_count(const AttentionSm90Config& config) {
  return (config.block_q / 64 + (config.factors == AttentionFactors::widened ? 2 : 1)) * 128;
}

std::string tile_name(const AttentionSm90Config& config) {
  return std::to_string(config.block_q) + "x" + std::to_string(config.block_kv) + "x" +
         std::to_string(config.stages) + (config.grouped ? " grouped" : "") +
         (config.splits ? " split" : "");
}

std::span<const YieldRule> yields_for_sm90(const AttentionTraits& traits) {
  if (!gains_by_yields(traits)) return {};
  return kYields;
}

}  // namespace kiln
