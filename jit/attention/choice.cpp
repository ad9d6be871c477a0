#include "jit/attention/config.h"

#include <algorithm>
#include <iterator>

#include "jit/attention/copy_keys.h"
#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/attention/plan.h"
#include "jit/op/arch.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

RowKind kind_of(const AttentionConfig& config) {
  const bool has_teams = config.teams > 1;
  return has_teams && config.block_q == 32   ? RowKind::decode_32
         : has_teams && config.block_q == 64 ? RowKind::decode_64
         : has_teams && config.warps == 8    ? RowKind::decode_alone
         : config.block_q == 16              ? RowKind::decode
         : config.splits                     ? RowKind::few
         : config.max_keys > 0               ? RowKind::narrow
                                             : RowKind::many;
}

// The rows that traits can use on an arch. What the traits ask for is worked out once, as a call
// looks at up to three kinds of rows.
class Rows {
 public:
  Rows(const AttentionTraits& traits, int arch)
      : traits_(traits),
        limits_(arch_table()[static_cast<std::size_t>(arch)]),
        major_(limits_.number / 10),
        dim_(attention_padded_dim(std::max(traits.head_dim, traits.head_dim_v))),
        masks_(traits.mask == Mask::none ? Masks::none : Masks::some),
        work_(work_of(traits)) {}

  // -1: none. Where no row is made for decoding, that for a few queries serves.
  int first(RowKind kind) const {
    const std::span<const AttentionConfig> configs = attention_configs();
    for (std::size_t row = 0; row < configs.size(); ++row) {
      if (kind_of(configs[row]) == kind && serves(configs[row])) return static_cast<int>(row);
    }
    return kind == RowKind::decode ? first(RowKind::few) : -1;
  }
  std::vector<int> of_kinds(std::span<const RowKind> kinds) const {
    std::vector<int> rows;
    for (const RowKind kind : kinds) {
      const int row = first(kind);
      if (row >= 0 && std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    }
    return rows;
  }

 private:
  bool serves(const AttentionConfig& config) const {
    if (dim_ < config.min_dim || config.max_dim < dim_ || limits_.number < config.since ||
        major_ == config.spills_on || work_ > config.work ||
        config.key_bytes != size_of(traits_.k)) {
      return false;
    }
    if (config.dense && traits_.storage != Storage::dense) return false;
    // Tiles for masks by pairs spill with medium code on sm_100 and sm_120.
    if (config.work == Work::pairs && work_ != Work::pairs) return false;
    if (config.masks != Masks::any && config.masks != masks_) return false;
    if (config.max_keys > 0 && traits_.mask != Mask::window) return false;
    // Partners have equally many columns of V, a multiple of 64, and none of padding.
    if (config.partners > 1 && traits_.head_dim_v % (64 * config.partners) != 0) return false;
    // Beside ALiBi, 8-bit queries of e5m2 spill 24 bytes in tiles of 64 rows of head dim 512.
    if (config.partners == 4 && config.block_q == 64 && traits_.byte_queries && traits_.alibi) {
      return false;
    }
    const int bytes = shared_bytes(config, traits_);
    return bytes <= limits_.shared_bytes &&
           config.residents * (bytes + 1024) <= limits_.shared_bytes_per_sm;
  }

  const AttentionTraits& traits_;
  const Arch& limits_;
  int major_, dim_;
  Masks masks_;
  Work work_;
};

// How many CTAs share a tile's keys. Decoding warps have enough loads under way with one CTA on
// each multiprocessor; a second split only adds to what must be combined, which pays where less
// than two thirds of the multiprocessors would work. Others want as many CTAs as fit.
int splits_of(const AttentionConfig& config, std::int64_t tiles, std::int64_t keys, int sm_count) {
  const bool decodes = kind_of(config) == RowKind::decode;
  const std::int64_t least_keys = decodes ? config.teams * config.block_kv : 4 * config.block_kv;
  const std::int64_t places = decodes ? sm_count : 2 * sm_count;
  std::int64_t splits = places / std::max<std::int64_t>(tiles, 1);
  if (decodes && 3 * splits * tiles < 2 * places) ++splits;
  return static_cast<int>(std::clamp<std::int64_t>(std::min(splits, keys / least_keys), 1, 128));
}

}  // namespace

Work work_of(const AttentionTraits& traits) {
  const bool has_tree = traits.mask == Mask::tree;
  // The position of each key is worked out where keys are spread.
  const bool finds_positions = traits.spread && (traits.alibi || has_tree);
  const bool is_heavy = traits.has_variant() || !traits.aligned || finds_positions;
  const bool is_medium =
      std::any_of(std::begin(kBuiltinVariants), std::end(kBuiltinVariants),
                  [&](const BuiltinVariant& variant) {
                    return variant.hook == Hook::logits && is_set(variant, traits);
                  }) ||
      has_tree;
  if (traits.attn_mask == DType::none) {
    return is_heavy ? Work::heavy : is_medium ? Work::medium : Work::light;
  }
  if (!traits.mask_pairs || is_heavy || is_medium) return Work::gather;
  // Wide heads have tiles for code at every logit that leave registers for this instead.
  return std::max(traits.head_dim, traits.head_dim_v) > 128 ? Work::medium : Work::pairs;
}

int shared_bytes(const AttentionConfig& config, const AttentionTraits& traits) {
  return attention_shared_bytes(traits.head_dim, traits.head_dim_v, config.block_q, config.block_kv,
                                config.stages, config.teams, config.partners, config.splits,
                                size_of(traits.q), size_of(traits.k));
}

std::string tile_name(const AttentionConfig& config) {
  return std::to_string(config.block_q) + "x" + std::to_string(config.block_kv) + "x" +
         std::to_string(config.stages) + (config.splits ? " split" : "") +
         (config.warps > 4 ? " of 8 warps" : "");
}

int row_of_kind(RowKind kind, const AttentionTraits& traits, int arch) {
  return Rows(traits, arch).first(kind);
}

std::vector<int> rows_of_kinds(std::span<const RowKind> kinds, const AttentionTraits& traits,
                               int arch) {
  return Rows(traits, arch).of_kinds(kinds);
}

std::vector<int> attention_rows(const AttentionTraits& traits, int arch) {
  if (traits.storage != Storage::dense) return {};
  constexpr RowKind kKinds[] = {RowKind::decode, RowKind::few, RowKind::narrow, RowKind::many};
  return rows_of_kinds(kKinds, traits, arch);
}

AttentionChoice choose_attention(const AttentionTraits& traits, int arch,
                                 const AttentionExtent& extent, int sm_count, bool may_split) {
  const std::int64_t rows =
      extent.len_q * (extent.heads / std::max<std::int64_t>(extent.heads_kv, 1));
  const Rows served(traits, arch);
  const auto tiles_of = [&](const AttentionConfig& config) {
    return attention_tiles(extent.batch, extent.heads, extent.heads_kv, extent.len_q,
                           config.block_q, config.splits);
  };
  const auto split_choice = [&](RowKind kind) {
    const int row = served.first(kind);
    const AttentionConfig& config = attention_config(row);
    return AttentionChoice{
        row, may_split ? splits_of(config, tiles_of(config), extent.keys, sm_count) : 1};
  };
  if (rows <= 16) return split_choice(RowKind::decode);
  if (rows <= 64) return split_choice(RowKind::few);
  if (const int narrow = served.first(RowKind::narrow);
      narrow >= 0 && extent.keys <= attention_config(narrow).max_keys) {
    return {narrow, 1};
  }
  const AttentionChoice many{served.first(RowKind::many), 1};
  if (tiles_of(attention_config(many.row)) >= sm_count) return many;
  const AttentionChoice few = split_choice(RowKind::few);
  return few.splits > 1 ? few : many;
}

bool resolve_portable(AttentionProblem& problem, const runtime::Device& device, bool may_split) {
  const AttentionTraits& traits = problem.traits;
  if (traits.storage != Storage::dense) return false;
  const int arch = arch_of(device);
  const AttentionChoice choice = choose_attention(
      traits, arch, {problem.batch, problem.heads, problem.heads_kv, problem.len_q, problem.keys},
      device.info().sm_count, may_split);
  const AttentionConfig& config = attention_config(choice.row);
  const long long tiles = attention_tiles(problem.batch, problem.heads, problem.heads_kv,
                                          problem.len_q, config.block_q, config.splits);
  Step& step = problem.recipe.first();
  step.spec = Specialization(kFlashAttention, arch, choice.row, traits);
  step.blocks = grid_of(tiles * choice.splits);
  step.splits = choice.splits;
  const auto bytes = static_cast<std::size_t>(
      attention_workspace_bytes(tiles, choice.splits, config.block_q, traits.head_dim_v));
  if (bytes == 0) return true;
  step.arguments.set_int(offsetof(AttentionParams, splits), choice.splits);
  step.arguments.want_workspace(offsetof(AttentionParams, workspace), 0, bytes,
                                offsetof(AttentionParams, nonce));
  problem.recipe.workspace_bytes = bytes;
  return true;
}

void resolve(AttentionProblem& problem, const runtime::Device& device, bool may_split) {
  for (const AttentionPath& path : attention_paths()) {
    if (path.resolve(problem, device, may_split)) break;
  }
  add_bounds_launch(problem, device, may_split);
  check_plan_length(problem);
}

std::vector<Specialization> attention_kernels(const AttentionTraits& traits, int arch) {
  std::vector<Specialization> specs;
  for (const AttentionPath& path : attention_paths()) {
    for (int row : path.rows(traits, arch)) specs.emplace_back(*path.kernel, arch, row, traits);
  }
  const bool has_bounds = traits.variant_bounds_elements() && traits.storage == Storage::dense;
  if (has_bounds) specs.push_back(element_bounder(arch));
  return specs;
}

std::vector<Specialization> kernels_of_calls(const AttentionTraits& traits, int arch) {
  std::vector<Specialization> specs = attention_kernels(traits, arch);
  for (const Specialization& spec : kernels_of_copied(traits, arch)) specs.push_back(spec);
  if (!may_be_sequences(traits)) return specs;
  AttentionTraits of_sequences = traits;
  of_sequences.storage = Storage::ragged;
  for (int row : rows_as_sequences(of_sequences, arch)) {
    specs.emplace_back(kFlashAttentionSm90, arch, row, of_sequences);
  }
  return specs;
}

double flops_of(const AttentionProblem& problem) {
  const AttentionTraits& traits = problem.traits;
  const double queries = traits.storage == Storage::dense
                             ? static_cast<double>(problem.batch) * problem.len_q
                             : static_cast<double>(problem.tokens);
  const double pairs = queries * problem.heads * problem.len_kv;
  const double visible = traits.mask == Mask::causal ? 0.5 : 1.0;
  return 2 * pairs * visible * (traits.head_dim + traits.head_dim_v);
}

}  // namespace kiln
