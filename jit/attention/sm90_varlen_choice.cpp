// Where sequences have lengths of their own: which row of the sm_90a kernels a step has, and how
// its keys are copied. The host knows bounds of lengths and numbers of tokens alone.
#include <algorithm>
#include <cstring>
#include <limits>

#include "jit/attention/family.h"
#include "jit/attention/gathered_rows.h"
#include "jit/attention/paths.h"
#include "jit/attention/sequence_tensors.h"
#include "jit/attention/sm90_varlen_cost.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

bool have_maps(const AttentionVarlenParams& params, int element_bytes) {
  const AttentionParams& p = params.call;
  const bool is_packed = params.packed_queries != 0;
  const RowsShape queries{is_packed ? 1 : p.batch, is_packed ? params.tokens : p.len_q, p.heads};
  const RowsShape keys{params.entries_k, params.rows_k, p.heads_kv};
  return params.rows_k > 0 && params.entries_k > 0 &&
         is_map(queries, p.q_batch, p.q_row, p.q_head, element_bytes) &&
         is_map(keys, p.k_batch, p.k_row, p.k_head, element_bytes) &&
         is_map(keys, p.v_batch, p.v_row, p.v_head, element_bytes);
}

// Whether the rows of a quantised cache can be gathered: the kernel counts pieces of 16 bytes in 32
// bits.
bool can_widen(const AttentionVarlenParams& params) {
  const auto extent = [&](long long page, long long row, long long head) {
    const auto reach = [](long long count, long long stride) {
      return count > 1 ? (count - 1) * stride : 0;
    };
    return reach(params.entries_k, page) + reach(params.rows_k, row) +
           reach(params.call.heads_kv, head);
  };
  const AttentionParams& p = params.call;
  constexpr long long kMost = 16LL << 32;
  return extent(p.k_batch, p.k_row, p.k_head) < kMost &&
         extent(p.v_batch, p.v_row, p.v_head) < kMost;
}

// The row of the form of least cost. -1: none.
template <class Cost>
int least_row(const AttentionTraits& traits, int arch, const AttentionLengths& lengths,
              Sm90Form form, Cost cost_of_row) {
  int best = -1;
  double least = 0;
  for_each_sm90_row(traits, arch, form, [&](int row) {
    if (!serves_keys(sm90_config_at(row), lengths)) return false;
    const double cost = cost_of_row(row);
    if (best < 0 || cost < least) best = row, least = cost;
    return false;
  });
  return best;
}

// The row of the fastest tiles of one causal sequence. -1: none.
int drawn_row(const AttentionProblem& problem, const AttentionLengths& lengths, int arch,
              int sm_count) {
  const auto cost = [&](int row) {
    // The speed of rows for windows is that with few keys.
    if (sm90_config_at(row).windows) return std::numeric_limits<double>::infinity();
    return cost_of_whole(problem, row, sm_count);
  };
  const int alone = least_row(problem.traits, arch, lengths, {}, cost);
  const int grouped = least_row(problem.traits, arch, lengths, {.grouped = true}, cost);
  if (grouped < 0 || form_of(problem, sm90_config_at(grouped), sm_count).heads == 1) return alone;
  return cost(grouped) < 0.99 * cost(alone) ? grouped : alone;
}

// The row of the fastest whole tiles. -1: none.
int whole_row(const AttentionProblem& problem, const AttentionLengths& lengths, int arch,
              int sm_count) {
  int best = first_sm90_row(problem.traits, arch, lengths);
  if (best < 0) return best;
  if (is_drawn_triangle(problem)) return drawn_row(problem, lengths, arch, sm_count);
  const auto work_of_tiles = [&](int row) {
    const AttentionSm90Config& config = sm90_config_at(row);
    return static_cast<double>(form_of(problem, config, sm_count).tiles) * rows_of(config);
  };
  const int grouped = least_row(problem.traits, arch, lengths, {.grouped = true}, work_of_tiles);
  const bool may_group =
      grouped >= 0 && form_of(problem, sm90_config_at(grouped), sm_count).heads > 1;
  // Beside a launch that decodes other sequences, 0.92 to 0.98 of the work took 1.02 of the time.
  const bool has_others = problem.batch > 1 && decodes_others(problem, sm90_config_at(best));
  const double least = (has_others ? 0.9 : 0.99) * work_of_tiles(best);
  if (may_group && work_of_tiles(grouped) < least) best = grouped;
  // Fewer rows may make one round less of many keys, and shorten the longest tile of few. Where all
  // sequences are as long as the bound, more or fewer rows may pad them less; up to 1k keys, the
  // table's order is by measurements.
  const bool is_uneven = !evens_out(problem) && problem.keys >= 4096;
  const bool has_few =
      is_triangle(problem) && rounds_of(problem, sm90_config_at(best), sm_count) < 2;
  const bool are_equal = problem.keys > 1024 && have_equal_queries(problem);
  if (!is_uneven && !has_few && !are_equal) return best;
  // Rows chosen so for mixed sequences took 1.04 to 1.2 times as long.
  if (has_mixed_tiles(problem)) return best;
  for_each_sm90_row(problem.traits, arch, {}, [&](int row) {
    const AttentionSm90Config& config = sm90_config_at(row);
    // The speed of rows for windows is that with few keys.
    if (!config.windows &&
        cost_of_whole(problem, row, sm_count) < 0.97 * cost_of_whole(problem, best, sm_count)) {
      best = row;
    }
    return false;
  });
  return best;
}

// The row of the fastest shares. -1: none.
int shared_row(const AttentionProblem& problem, const AttentionLengths& lengths, int arch,
               int sm_count) {
  return least_row(problem.traits, arch, lengths, {.splits = true}, [&](int row) {
    // The longest tile of a triangle decides: 2k, 8/1 heads, take 35 us with 128 rows, 43 with 192.
    if (evens_out(problem)) return rows_of(sm90_config_at(row));
    return cost_of_shares(problem, row, sm_count);
  });
}

// Whether CTAs share the keys of query tiles, as templates/attention/sm90/sequence_shares.cuh says:
// where the whole tiles of row `whole` leave multiprocessors without work for longer than it takes
// to find, begin and join shares.
bool shares_keys(const AttentionProblem& problem, int whole, int shared, int sm_count) {
  if (problem.keys < 2 * kLeastSplitKeys) return false;
  const double rounds = rounds_of(problem, sm90_config_at(shared), sm_count);
  // Lengths that differ leave even more without work than is seen here. Equal ones may fill the
  // round well enough: of one sequence, 0.67 of it did not, 0.91 did.
  const double least_fill = problem.batch == 1 ? 0.85 : 0.5;
  const bool may_fill = !evens_out(problem) && !is_mixed(problem) && rounds > least_fill;
  if (rounds <= 1 && !may_fill) {
    // A tile that no two CTAs share takes up to 1.07 times as long in a kernel for shares. One of
    // more rows, as 8-bit queries have, was not measured.
    const AttentionSm90Config& config = sm90_config_at(shared);
    const bool may_be_whole =
        is_drawn_triangle(problem) && sm90_config_at(whole).block_q <= config.block_q;
    if (!may_be_whole) return true;
    return cut_alone(problem, config, form_of(problem, config, sm_count), sm_count).pieces != 1;
  }
  if (evens_out(problem)) return false;
  // A single round takes as long as the longest tile, while the others' multiprocessors wait.
  if (is_mixed(problem) && rounds_of(problem, sm90_config_at(whole), sm_count) <= 1) return true;
  return cost_of_shares(problem, shared, sm_count) < 0.97 * cost_of_whole(problem, whole, sm_count);
}

// -1: none.
int varlen_row(const AttentionProblem& problem, int arch, int sm_count, bool may_split) {
  // Where a result may not depend on bounds, they choose no row.
  if (problem.whole_tiles) {
    return first_sm90_row(problem.traits, arch, {0x7fffffff, 0x7fffffff, false});
  }
  const AttentionLengths lengths = lengths_of(problem);
  const int whole = whole_row(problem, lengths, arch, sm_count);
  if (whole < 0 || !may_split) return whole;
  const int shared = shared_row(problem, lengths, arch, sm_count);
  return shared >= 0 && shares_keys(problem, whole, shared, sm_count) ? shared : whole;
}

// Completes a step of whichever row; false if it does not serve the call.
bool fill_row(Step& step, const AttentionProblem& problem, const runtime::Device& device, int row,
              bool may_split, std::size_t& workspace) {
  const int arch = arch_of(device), sm_count = device.info().sm_count;
  AttentionVarlenParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  const AttentionSm90Config& config = sm90_config_at(row);
  const bool are_bytes = config.factors == AttentionFactors::bytes;
  if (!have_maps(params, are_bytes ? 1 : size_of(problem.traits.q))) return false;
  const TileForm form = form_of(problem, config, sm_count);
  const std::int64_t tiles = form.columns * (problem.tokens / form.queries + problem.batch);
  // The schedule keeps numbers of tiles in 27 bits, see sm90/sequence_schedule.cuh.
  if (tiles > 0x7ffffff - 2 * sm_count) return false;
  const bool widens = config.factors == AttentionFactors::widened;
  const int box_rows = widens ? 0 : box_rows_of(page_of(problem), config.block_kv);
  if (box_rows == 0) {
    if (are_bytes) return false;  // no warps are left that gather
    if (widens) {
      if (!can_widen(params)) return false;
    } else if (!gather_rows(step, config.block_kv)) {
      return false;
    }
  }
  step.spec = Specialization(kFlashAttentionSm90, arch, row, problem.traits);
  const std::int64_t pieces =
      config.splits ? tiles * tiles_of(problem.keys, kLeastSplitKeys) : tiles;
  step.blocks = static_cast<unsigned>(std::min<std::int64_t>(pieces, sm_count));
  if (const AloneCut cut = cut_alone(problem, config, form, sm_count); cut.pieces > 0) {
    const std::int64_t rest = form.columns * tiles_of(problem.len_q, form.queries) - cut.whole;
    step.blocks = cut.whole > 0 ? sm_count : grid_of(cut.pieces * rest);
    step.arguments.set_value(offsetof(AttentionVarlenParams, alone), divisor_of(cut.pieces));
    step.arguments.set_int(offsetof(AttentionVarlenParams, alone_whole),
                           static_cast<int>(cut.whole));
  }
  step.arguments.set_int(offsetof(AttentionVarlenParams, box_rows), box_rows);
  step.arguments.set_int(offsetof(AttentionVarlenParams, tile_heads), form.heads);
  step.arguments.set_int(offsetof(AttentionVarlenParams, tile_heads_factor),
                         (65536 + form.heads - 1) / form.heads);
  step.arguments.set_int(offsetof(AttentionVarlenParams, tile_queries), form.queries);
  if (!may_split) return true;
  // A warp's 16 rows of a shared tile are a tile of the workspace.
  const auto bytes = static_cast<std::size_t>(
      config.splits
          ? attention_varlen_workspace_bytes(std::int64_t{step.blocks} * (config.block_q / 16), 16,
                                             problem.traits.head_dim_v)
          : kAttentionDrawBytes);
  workspace = std::max(workspace, bytes);
  step.arguments.want_workspace(
      offsetof(AttentionVarlenParams, call) + offsetof(AttentionParams, workspace), 0, bytes,
      offsetof(AttentionVarlenParams, call) + offsetof(AttentionParams, nonce));
  return true;
}

}  // namespace

bool fill_varlen_sm90(Step& step, const AttentionProblem& problem, const runtime::Device& device,
                      bool may_split, std::size_t& workspace) {
  const int row = varlen_row(problem, arch_of(device), device.info().sm_count, may_split);
  return row >= 0 && fill_row(step, problem, device, row, may_split, workspace);
}

bool may_be_sequences(const AttentionTraits& traits) {
  AttentionTraits plain;
  plain.set_dtype(traits.q);
  plain.mask = traits.mask == Mask::causal ? Mask::causal : Mask::none;
  plain.head_dim = traits.head_dim, plain.head_dim_v = traits.head_dim_v;
  return traits == plain;
}

std::vector<int> rows_as_sequences(const AttentionTraits& traits, int arch) {
  std::vector<int> rows;
  for_each_sm90_row(traits, arch, {.splits = true}, [&](int row) {
    rows.push_back(row);
    return false;
  });
  return rows;
}

bool resolve_as_sequences(AttentionProblem& problem, const runtime::Device& device, double cost) {
  // Few queries of many keys: of 4k keys, four batch entries of 512 queries took 1.17 times as
  // long.
  const bool has_few =
      problem.keys >= std::max<std::int64_t>(std::int64_t{4} * problem.len_q, 8192);
  if (!has_few || group_of(problem) == 1 || !may_be_sequences(problem.traits)) return false;
  const int arch = arch_of(device), sm_count = device.info().sm_count;
  problem.traits.storage = Storage::ragged;
  problem.tokens = std::int64_t{problem.batch} * problem.len_q;
  Step& step = problem.recipe.first();
  const int row = shared_row(problem, lengths_of(problem), arch, sm_count);
  if (row >= 0 && cost_of_shares(problem, row, sm_count) < 0.97 * cost) {
    AttentionVarlenParams params{};
    std::memcpy(&params.call, step.arguments.bytes().data(), sizeof params.call);
    set_sizes(problem, problem.len_kv, problem.batch, params);
    // The places of the call's tensors stay the same.
    static_assert(offsetof(AttentionVarlenParams, call) == 0);
    const AttentionParams before = params.call;
    step.arguments.set_params(params);
    if (fill_row(step, problem, device, row, true, problem.recipe.workspace_bytes)) return true;
    step.arguments.set_params(before);
  }
  problem.traits.storage = Storage::dense, problem.tokens = 0;
  return false;
}

}  // namespace kiln
