#include <algorithm>

#include "jit/arch.h"
#include "jit/config.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

// Within a group of head dims and kinds, the first row that fits the arch is taken. H200 figures.
//
// Registers a thread: the accumulator of O takes head_dim_v / 2 for each 16 query rows of its warp,
// S block_kv / 2. 32 rows a warp halve the shared-memory reads of K and V, the tightest unit after
// the tensor cores, but leave room only up to head dim 128. Two CTAs of four warps that overlap
// each other's softmax beat one of eight at every head dim.
//
// The fields: head dims from, to; block_q, block_kv, warps, teams, partners, stages; splits,
// residents, work, masks, since; the reason; where they count, max_keys and spills_on.
constexpr AttentionConfig kConfigs[] = {
    // Up to 16 rows of all the heads that share a KV head: decode.
    {16, 64, 16, 32, 4, 4, 1, 3, true, 2, Work::gather, Masks::any, 80,
     "decode: a warp streams keys by itself, 64 KB a multiprocessor under way; 4.05 TB/s"},
    {16, 64, 16, 32, 4, 4, 1, 2, true, 1, Work::gather, Masks::any, 80, "the same in 68 KB"},
    {80, 128, 16, 16, 4, 4, 1, 3, true, 2, Work::gather, Masks::any, 80,
     "decode: a warp streams keys by itself, 64 KB a multiprocessor under way; 4.45 TB/s"},
    {80, 128, 16, 16, 4, 4, 1, 2, true, 1, Work::gather, Masks::any, 80, "the same in 68 KB"},
    {144, 256, 16, 16, 4, 4, 1, 2, true, 1, Work::gather, Masks::any, 80,
     "decode: 64 KB under way with one CTA; 4.06 TB/s"},
    {144, 256, 16, 16, 2, 2, 1, 2, true, 1, Work::gather, Masks::any, 80, "the same in 72 KB"},

    // Up to 64 such rows, or any number of rows where wide tiles leave multiprocessors idle.
    {16, 64, 64, 64, 4, 1, 1, 2, true, 2, Work::gather, Masks::any, 80,
     "a few queries: 16 rows a warp"},
    {80, 128, 64, 64, 4, 1, 1, 2, true, 2, Work::gather, Masks::any, 80,
     "a few queries: 16 rows a warp"},
    {80, 128, 64, 64, 4, 1, 1, 1, true, 1, Work::gather, Masks::any, 80, "the same in 48 KB"},
    {144, 192, 64, 64, 4, 1, 1, 1, true, 1, Work::medium, Masks::any, 80, "a few queries"},
    {256, 256, 64, 64, 4, 1, 2, 1, true, 2, Work::medium, Masks::any, 80,
     "a few queries: 32 rows for two warps", 0, 10},
    {208, 256, 64, 64, 4, 1, 1, 1, true, 1, Work::medium, Masks::any, 80, "a few queries"},
    {144, 256, 64, 32, 4, 1, 1, 2, true, 1, Work::heavy, Masks::any, 80,
     "a few queries, heavy code"},
    {144, 256, 64, 16, 4, 1, 1, 2, true, 1, Work::gather, Masks::any, 80,
     "a few queries: 32 keys spill with a mask on sm_90"},

    // Many queries that see few keys: all tiles are masked, and what happens before the first and
    // after the last weighs as much as they do, so that more and smaller CTAs hide each other's.
    {16, 64, 64, 32, 2, 1, 1, 3, false, 2, Work::light, Masks::some, 80,
     "windows up to 512: 0.69 of 128x96's time at 128 keys, 0.90 at 512", 512},
    {80, 128, 64, 32, 2, 1, 1, 2, false, 2, Work::light, Masks::some, 80,
     "windows up to 256: 0.90 to 0.98 of 128x64's time at 128 keys", 256},

    // Many queries.
    {16, 64, 128, 128, 4, 1, 1, 1, false, 2, Work::light, Masks::none, 80,
     "32 rows a warp, S of 128 registers: 353 TFLOP/s at 4k, 128x96 reaches 344", 0, 12},
    {16, 64, 128, 96, 4, 1, 1, 2, false, 2, Work::light, Masks::some, 80,
     "128 keys would spill with a mask; 312 TFLOP/s causal at 4k, one stage of 112 keys 301"},
    {16, 64, 128, 96, 4, 1, 1, 2, false, 2, Work::medium, Masks::any, 90,
     "the same with code at every logit"},
    {16, 64, 128, 64, 4, 1, 1, 2, false, 1, Work::heavy, Masks::any, 80,
     "room for the user's code"},
    {16, 64, 64, 64, 4, 1, 1, 2, false, 2, Work::gather, Masks::any, 80,
     "16 rows a warp: room for the loads of a mask"},
    {80, 128, 128, 64, 4, 1, 1, 2, false, 2, Work::light, Masks::any, 80,
     "32 rows a warp, two stages: 385 TFLOP/s at 4k; 128x32 355, 64x64 314", 0, 10},
    {80, 128, 128, 48, 4, 1, 1, 2, false, 2, Work::medium, Masks::any, 90,
     "code at every logit, where 64 keys spill with ALiBi", 0, 10},
    {80, 128, 128, 48, 4, 1, 1, 2, false, 2, Work::light, Masks::any, 80,
     "80 KB: two CTAs on sm_80", 0, 10},
    {80, 128, 128, 32, 4, 1, 1, 2, false, 2, Work::light, Masks::any, 100,
     "room for ptxas on sm_100, which spills the wider tiles; not measured there"},
    {80, 128, 128, 32, 4, 1, 1, 2, false, 2, Work::pairs, Masks::any, 90,
     "room for a mask by pairs: 0.87 of 64x64's time at 2k, 48 keys spill"},
    {80, 128, 64, 64, 4, 1, 1, 1, false, 2, Work::gather, Masks::any, 80,
     "16 rows a warp: room for the user's code; two CTAs even in 100 KB"},
    {144, 192, 64, 64, 4, 1, 1, 1, false, 1, Work::medium, Masks::any, 80,
     "16 rows a warp; one stage, so that two CTAs fit"},
    {256, 256, 64, 64, 4, 1, 2, 1, false, 2, Work::medium, Masks::any, 80,
     "32 rows for two warps, each with half of O's columns: 331 TFLOP/s at 4k; 16 rows a warp 314"},
    {208, 256, 64, 64, 4, 1, 1, 1, false, 1, Work::medium, Masks::any, 80,
     "16 rows a warp; one stage, so that two CTAs fit: 314 TFLOP/s at 4k, two stages of 32 286"},
    {144, 256, 64, 32, 4, 1, 1, 1, false, 1, Work::gather, Masks::any, 80,
     "room for the user's code"},
};

Work work_of(const AttentionTraits& traits) {
  const bool is_heavy = traits.variant != Digest128{} || !traits.aligned;
  const bool is_medium = traits.softcap || traits.alibi;
  if (traits.attn_mask == DType::none) {
    return is_heavy ? Work::heavy : is_medium ? Work::medium : Work::light;
  }
  if (!traits.mask_pairs || is_heavy || is_medium) return Work::gather;
  // Wide heads have tiles for code at every logit that leave registers for this instead.
  return std::max(traits.head_dim, traits.head_dim_v) > 128 ? Work::medium : Work::pairs;
}

enum class Kind { decode, few, narrow, many };
Kind kind_of(const AttentionConfig& config) {
  return config.teams > 1      ? Kind::decode
         : config.splits       ? Kind::few
         : config.max_keys > 0 ? Kind::narrow
                               : Kind::many;
}

bool serves(const AttentionConfig& config, const AttentionTraits& traits, int arch) {
  const int dim =
      std::max(attention_padded_dim(traits.head_dim), attention_padded_dim(traits.head_dim_v));
  const Masks masks = traits.mask == Mask::none ? Masks::none : Masks::some;
  const Arch& limits = arch_table()[static_cast<std::size_t>(arch)];
  if (dim < config.min_dim || config.max_dim < dim || limits.number < config.since) return false;
  if (limits.number / 10 == config.spills_on) return false;
  const Work work = work_of(traits);
  if (work > config.work) return false;
  // What fits a mask by pairs spills with medium code on sm_100 and sm_120.
  if (config.work == Work::pairs && work != Work::pairs) return false;
  if (config.masks != Masks::any && config.masks != masks) return false;
  if (config.max_keys > 0 && traits.mask != Mask::window) return false;
  // Partners split the columns of V at a multiple of 64.
  if (attention_padded_dim(traits.head_dim_v) % (64 * config.partners) != 0 &&
      config.partners > 1) {
    return false;
  }
  const int bytes = shared_bytes(config, traits);
  return bytes <= limits.shared_bytes &&
         config.residents * (bytes + 1024) <= limits.shared_bytes_per_sm;
}

int first_row(const AttentionTraits& traits, int arch, Kind kind) {
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    const AttentionConfig& config = kConfigs[row];
    if (kind_of(config) == kind && serves(config, traits, arch)) return row;
  }
  return -1;
}

// How many CTAs share a tile's keys. Decoding warps have enough loads under way with one CTA on
// each multiprocessor; a second split only adds to what must be combined, which pays where less
// than two thirds of the multiprocessors would work. Others want as many CTAs as fit.
int splits_of(const AttentionConfig& config, std::int64_t tiles, std::int64_t keys, int sm_count) {
  const bool decodes = kind_of(config) == Kind::decode;
  const std::int64_t least_keys = decodes ? config.teams * config.block_kv : 4 * config.block_kv;
  const std::int64_t places = decodes ? sm_count : 2 * sm_count;
  std::int64_t splits = places / std::max<std::int64_t>(tiles, 1);
  if (decodes && 3 * splits * tiles < 2 * places) ++splits;
  return static_cast<int>(std::clamp<std::int64_t>(std::min(splits, keys / least_keys), 1, 128));
}

}  // namespace

std::span<const AttentionConfig> attention_configs() { return kConfigs; }

int shared_bytes(const AttentionConfig& config, const AttentionTraits& traits) {
  return attention_shared_bytes(traits.head_dim, traits.head_dim_v, config.block_q, config.block_kv,
                                config.stages, config.teams, config.partners, config.splits);
}

std::string tile_name(const AttentionConfig& config) {
  return std::to_string(config.block_q) + "x" + std::to_string(config.block_kv) + "x" +
         std::to_string(config.stages) + (config.splits ? " split" : "");
}

std::vector<int> attention_rows(const AttentionTraits& traits, int arch) {
  std::vector<int> rows;
  for (const Kind kind : {Kind::decode, Kind::few, Kind::narrow, Kind::many}) {
    if (const int row = first_row(traits, arch, kind); row >= 0) rows.push_back(row);
  }
  return rows;
}

Choice choose_attention(const AttentionTraits& traits, int arch, const AttentionExtent& extent,
                        int sm_count, bool may_split) {
  const std::int64_t rows =
      extent.len_q * (extent.heads / std::max<std::int64_t>(extent.heads_kv, 1));
  const auto tiles_of = [&](const AttentionConfig& config) {
    return attention_tiles(extent.batch, extent.heads, extent.heads_kv, extent.len_q,
                           config.block_q, config.splits);
  };
  const auto split_choice = [&](Kind kind) {
    const int row = first_row(traits, arch, kind);
    const AttentionConfig& config = kConfigs[row];
    return Choice{row, may_split ? splits_of(config, tiles_of(config), extent.keys, sm_count) : 1};
  };
  if (rows <= 16) return split_choice(Kind::decode);
  if (rows <= 64) return split_choice(Kind::few);
  if (const int narrow = first_row(traits, arch, Kind::narrow);
      narrow >= 0 && extent.keys <= kConfigs[narrow].max_keys) {
    return {narrow, 1};
  }
  const Choice many{first_row(traits, arch, Kind::many), 1};
  if (tiles_of(kConfigs[many.row]) >= sm_count) return many;
  const Choice few = split_choice(Kind::few);
  return few.splits > 1 ? few : many;
}

}  // namespace kiln
