#include <algorithm>
#include <cmath>
#include <cstring>

#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/attention/sm90_config.h"
#include "jit/attention/sm90_deal.h"
#include "jit/attention/sm90_rows.h"
#include "jit/attention/tuning.h"
#include "jit/op/arch.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

bool have_maps(const AttentionParams& p, int element_bytes) {
  const RowsShape queries{p.batch, p.len_q, p.heads}, keys{p.batch, p.len_kv, p.heads_kv};
  return is_map(queries, p.q_batch, p.q_row, p.q_head, element_bytes) &&
         is_map(keys, p.k_batch, p.k_row, p.k_head, element_bytes) &&
         is_map(keys, p.v_batch, p.v_row, p.v_head, element_bytes) &&
         is_map(queries, p.out_batch, p.out_row, p.out_head, element_bytes);
}

}  // namespace

std::string why_not_attention_sm90(const AttentionTraits& traits, int arch) {
  if (arch_table()[static_cast<std::size_t>(arch)].number != 90) {
    return "wgmma is an instruction of compute capability 9.0 alone";
  }
  if (!traits.aligned) {
    return "q, k, v or out admits no tensor map: its base and its strides must be multiples of 16 "
           "bytes";
  }
  if (traits.mask == Mask::tree) return "a tree masks at most 64 queries of a sequence";
  if (traits.spread) return "the keys of a sequence are spread over devices";
  if (traits.has_quantized_output()) return "out is quantised";
  if (traits.head_dim > kMostHeadDim) return "a head dim of 512 leaves no room for such tiles";
  if (!attention_sm90_rows(traits, arch).empty()) return "";
  return traits.has_quantized_cache() ? "head dims of a quantised cache must be multiples of 16"
                                      : "no tile has registers for such a variant";
}

std::vector<int> attention_sm90_rows(const AttentionTraits& traits, int arch) {
  std::vector<int> rows;
  for (const Sm90Form form : {Sm90Form{}, Sm90Form{.grouped = true}, Sm90Form{.splits = true}}) {
    for_each_sm90_row(traits, arch, form, [&](int row) {
      rows.push_back(row);
      return false;
    });
  }
  return rows;
}

namespace {

// A launch of one row's kernel for a call.
struct Launch {
  int row = -1;
  std::int64_t heads = 0, tiles = 0;  // tiles: of one head
  int splits = 1;
  const TunedAttention* measured = nullptr;  // the entry of the tuning table that named it
};

Launch launch_of(const AttentionProblem& problem, int row, int splits) {
  return {row, std::int64_t{problem.batch} * problem.heads,
          tiles_of(problem.len_q, sm90_config_at(row).block_q), splits, nullptr};
}

// The time that a launch takes, in units that compare launches of one call: products of query rows
// and keys in the CTA that has the most.
double cost_of(const AttentionProblem& problem, const Launch& launch, int sm_count) {
  const AttentionSm90Config& config = sm90_config_at(launch.row);
  // The ends of a query tile take as long as that many keys; partial results are written and
  // joined.
  const double ends = launch.splits > 1 ? 800 : 320;
  const double keys = static_cast<double>(
      tiles_of(tiles_of(problem.keys, config.block_kv), launch.splits) * config.block_kv);
  const auto ctas = static_cast<double>(launch.heads * launch.tiles * launch.splits) / sm_count;
  const double longest = keys + ends;
  // Long and short tiles of a triangle are dealt evenly, see sm90_deal.h; others in whole rounds.
  const bool has_triangle =
      problem.traits.mask != Mask::none || (problem.traits.variant_masks() && !problem.may_be_even);
  const bool is_triangle =
      has_triangle && !is_narrow_window(problem) && problem.len_kv < 2 * problem.len_q;
  const double rounds =
      is_triangle ? std::max(longest, ctas * (keys / 2 + ends)) : std::ceil(ctas) * longest;
  return rounds * config.block_q * 100 / config.speed;
}

// The limit of CTAs that share the keys of a query tile; below 2, none do.
int most_splits(const AttentionProblem& problem) {
  constexpr int kMost = 32;
  return std::min(problem.keys / kLeastSplitKeys, kMost);
}

// The row for many keys, and how many CTAs share the keys of a query tile.
Launch best_launch(const AttentionProblem& problem, int arch, int sm_count) {
  Launch best;
  double best_cost = 0;
  for (const bool splits : {false, true}) {
    for_each_sm90_row(problem.traits, arch, {splits}, [&](int row) {
      const AttentionSm90Config& config = sm90_config_at(row);
      const bool reads = config.reads && only_masks_read(problem.traits);
      if (config.windows && !reads) return false;  // its speed is that with few keys
      const int most = splits ? most_splits(problem) : 1;
      for (int count = splits ? 2 : 1; count <= most; ++count) {
        const Launch launch = launch_of(problem, row, count);
        const double cost = cost_of(problem, launch, sm_count);
        if (best.row < 0 || cost < 0.97 * best_cost) best = launch, best_cost = cost;
      }
      return false;
    });
  }
  return best;
}

Launch choose_launch(const AttentionProblem& problem, int arch, int sm_count, bool may_split) {
  const int row = first_sm90_row(problem.traits, arch, lengths_of(problem));
  if (row < 0) return {};
  const Launch usual = launch_of(problem, row, 1);
  const std::int64_t tiles = usual.heads * usual.tiles;
  // The portable kernel's small tiles fill more multiprocessors, and its CTAs may share keys too.
  // With windows it takes longer nevertheless where tiles are full: 2.8 times as long with 512
  // queries that see 1025 keys each, of 8 heads, which is the one case that was measured.
  const bool has_windows = is_narrow_window(problem) && 8 * tiles >= sm_count &&
                           problem.len_q >= sm90_config_at(row).block_q;
  const Launch whole = may_split && 2 * tiles < sm_count && !has_windows ? Launch{} : usual;
  // Shorter keys are not worth splitting, and sixteen rounds are even enough.
  if (!may_split || problem.keys < 1280 || tiles > 16 * std::int64_t{sm_count}) return whole;
  const Launch best = best_launch(problem, arch, sm_count);
  const bool model_decides = problem.keys >= 8192 || tiles < 2 * sm_count;
  return best.splits > 1 || (whole.row >= 0 && model_decides) ? best : whole;
}

// The tuning table names this launch, if it has the problem. Its row must be among those that calls
// choose from, because prewarming knows no others; the row is -1 otherwise.
Launch measured_launch(const AttentionProblem& problem, int arch, int sm_count, bool may_split) {
  const TunedAttention* entry = tuned_attention(problem, {arch, sm_count});
  if (entry == nullptr) return {};
  const AttentionTile& tile = entry->tile;
  const bool splits = tile.splits > 1;
  const int count = splits ? std::min(tile.splits, most_splits(problem)) : 1;
  if (splits && (!may_split || count < 2)) return {};
  Launch launch;
  for_each_sm90_row(problem.traits, arch, {splits}, [&](int row) {
    const AttentionSm90Config& config = sm90_config_at(row);
    const bool is_named = config.block_q == tile.block_q && config.block_kv == tile.block_kv &&
                          config.stages == tile.stages;
    if (is_named) {
      launch = launch_of(problem, row, count);
      launch.measured = entry;
    }
    return is_named;
  });
  return launch;
}

// AttentionParams::heads_paired.
int paired_of(const AttentionProblem& problem, const Launch& launch, std::int64_t ctas) {
  // Windows read few keys. All heads of a row are then dealt at a time, because their queries lie
  // side by side in memory. A window as wide as the keys is a causal mask: its tiles differ as
  // much, and it reads all keys.
  if (is_narrow_window(problem)) return 0;
  // What some variants' masks hide is not known here. Tiles of all heads at a time, those of the
  // last queries first, are shared well whatever they cost: prefixes take 0.94 to 1.00 of the time
  // of pairs at 5k to 32k keys, chunks 0.80 to 1.02. With more KV heads, too few CTAs share the
  // keys of one: prefixes took 1.045 times as long with 64, of 4k keys.
  const bool is_unknown = problem.traits.variant_masks() && problem.may_be_even;
  const std::int64_t kv_heads = std::int64_t{problem.batch} * problem.heads_kv;
  const bool may_differ = problem.traits.mask != Mask::none || problem.traits.variant_masks();
  // Few queries of many keys cost about the same wherever they are.
  if (!may_differ || problem.len_kv > std::int64_t{10} * problem.len_q) return -1;
  if (is_unknown && launch.splits == 1 && 4 * kv_heads <= ctas) return 0;
  // Most hide what causal masks do: as expressions, those took 1.57 times as long at 16k keys where
  // tiles were dealt in order. The deal must do for others, too, whose tiles cost the same.
  const std::int64_t seen_by_first = std::max(problem.len_kv - problem.len_q, 0);
  return heads_paired({launch.heads * launch.splits, launch.tiles,
                       2 + seen_by_first / sm90_config_at(launch.row).block_q / launch.splits, ctas,
                       is_unknown});
}

}  // namespace

bool resolve_attention_sm90(AttentionProblem& problem, const runtime::Device& device,
                            bool may_split) {
  const int arch = arch_of(device);
  const AttentionTraits& traits = problem.traits;
  if (traits.storage != Storage::dense) return false;
  const std::int64_t sharing = problem.heads / std::max(problem.heads_kv, 1);
  if (problem.len_q * sharing <= 64 || problem.len_kv == 0) return false;
  const int sm_count = device.info().sm_count;
  Launch launch = measured_launch(problem, arch, sm_count, may_split);
  if (launch.row < 0) launch = choose_launch(problem, arch, sm_count, may_split);
  if (launch.row < 0) return false;
  AttentionParams params;
  Step& step = problem.recipe.first();
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  if (!have_maps(params, size_of(traits.q))) return false;
  const bool may_choose = may_split && launch.measured == nullptr;
  if (may_choose && resolve_as_sequences(problem, device, cost_of(problem, launch, sm_count))) {
    return true;
  }
  const std::int64_t tiles = launch.heads * launch.tiles * launch.splits;
  if (tiles > 0x7fffffff - 2 * sm_count) return false;
  step.spec = Specialization(kFlashAttentionSm90, arch, launch.row, traits);
  step.blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, sm_count));
  step.splits = launch.splits;
  problem.measured = launch.measured;
  step.arguments.set_int(offsetof(AttentionParams, heads_paired),
                         paired_of(problem, launch, step.blocks));
  // Nobody knows what the tiles of masks that read tensors cost: see sm90/drawn_schedule.cuh.
  const bool draws = traits.variant_masks() && traits.variant_reads_tiles();
  if (launch.splits == 1 && draws && may_split) {
    step.arguments.want_workspace(offsetof(AttentionParams, workspace), 0, kAttentionDrawBytes,
                                  offsetof(AttentionParams, nonce));
    problem.recipe.workspace_bytes = kAttentionDrawBytes;
  }
  if (launch.splits == 1) return true;
  // A warp's 16 rows are a tile of the workspace.
  const auto bytes = static_cast<std::size_t>(attention_workspace_bytes(
      launch.heads * launch.tiles * (sm90_config_at(launch.row).block_q / 16), launch.splits, 16,
      traits.head_dim_v));
  step.arguments.set_int(offsetof(AttentionParams, splits), launch.splits);
  step.arguments.want_workspace(offsetof(AttentionParams, workspace), 0, bytes,
                                offsetof(AttentionParams, nonce));
  problem.recipe.workspace_bytes = bytes;
  return true;
}

}  // namespace kiln
