// Where sequences have lengths of their own: which row of the sm_90a kernels a step has, and how
// its keys are copied. The host knows bounds alone.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/attention/sequence_tensors.h"
#include "jit/attention/sm90_rows.h"
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

// The copy engine takes hardly longer than the products for boxes of so many rows, and far longer
// for smaller ones: their keys are gathered, as are those of a quantised cache.
constexpr int kLeastBoxRows = 8;

// Whether rows can be gathered: the kernel counts pieces of 16 bytes in 32 bits.
bool can_gather(const AttentionVarlenParams& params, int element_bytes) {
  const auto extent = [&](long long page, long long row, long long head) {
    const auto reach = [](long long count, long long stride) {
      return count > 1 ? (count - 1) * stride : 0;
    };
    return (reach(params.entries_k, page) + reach(params.rows_k, row) +
            reach(params.call.heads_kv, head)) *
           element_bytes;
  };
  const AttentionParams& p = params.call;
  constexpr long long kMost = 16LL << 32;
  return extent(p.k_batch, p.k_row, p.k_head) < kMost &&
         extent(p.v_batch, p.v_row, p.v_head) < kMost;
}

// Larger groups have one query in a tile, or none.
constexpr int kMostGroup = 64;

// Whether all sequences have as many queries as the bound says.
bool have_equal_queries(const AttentionProblem& problem) {
  return problem.tokens == std::int64_t{problem.batch} * problem.len_q;
}

// Whether another launch computes all sequences but one, see varlen_choice.cpp.
bool decodes_others(const AttentionProblem& problem, const AttentionSm90Config& config) {
  return !have_equal_queries(problem) &&
         rows_of_others(problem) <= (config.splits ? kDecodedRowsBesideShares : kDecodedRows);
}

// The query tiles of a row have rows of one head of the call, or of all that share a KV head.
struct TileForm {
  int heads = 1, queries = 0;  // rows of a tile: queries of each head
  std::int64_t columns = 0;    // tiles of the same queries
  std::int64_t tiles = 0;      // of all sequences, see queries_of_others()

  TileForm(const AttentionProblem& problem, int tile_heads, const AttentionSm90Config& config)
      : heads(tile_heads),
        queries(config.block_q / tile_heads),
        columns(tile_heads > 1 ? problem.heads_kv : problem.heads) {
    tiles = tiles_of(std::min<std::int64_t>(problem.len_q, problem.tokens), queries);
    if (!decodes_others(problem, config)) {
      tiles += (problem.batch - 1) * tiles_of(queries_of_others(problem), queries);
    }
    tiles *= columns;
  }
};

// Rows of all heads where that makes fewer tiles: few queries of one head fill no tile.
TileForm form_of(const AttentionProblem& problem, const AttentionSm90Config& config, int sm_count) {
  const TileForm alone(problem, 1, config);
  const auto group = static_cast<int>(group_of(problem));
  const bool may_group =
      groups_heads(config) && may_group_heads(problem.traits) && group > 1 && group <= kMostGroup;
  if (!may_group) return alone;
  // Shares are then as short as any, and tiles that are mostly empty take a tenth less.
  if (config.splits && alone.tiles * tiles_of(problem.keys, kLeastSplitKeys) <= sm_count) {
    return alone;
  }
  const TileForm grouped(problem, group, config);
  return grouped.tiles < alone.tiles ? grouped : alone;
}

// The query tiles of a row, in rounds of the multiprocessors.
double rounds_of(const AttentionProblem& problem, const AttentionSm90Config& config, int sm_count) {
  return static_cast<double>(form_of(problem, config, sm_count).tiles) / sm_count;
}

// A key costs a row so many products of rows.
double rows_of(const AttentionSm90Config& config) { return config.block_q * 100.0 / config.speed; }

// Whether long and short tiles, as a triangle has, even out the multiprocessors' work.
bool evens_out(const AttentionProblem& problem) {
  return problem.traits.mask != Mask::none && problem.len_kv < 2 * problem.len_q;
}

bool is_triangle(const AttentionProblem& problem) {
  return evens_out(problem) && !is_narrow_window(problem);
}

// The time of a row's whole tiles, in products of rows and keys of a multiprocessor.
double cost_of(const AttentionProblem& problem, int row, int sm_count) {
  const AttentionSm90Config& config = sm90_config_at(row);
  const double rounds = rounds_of(problem, config, sm_count), rows = rows_of(config);
  // The longest tile of a triangle takes twice as long as the mean.
  if (is_triangle(problem)) return std::max(1.0, rounds / 2) * problem.keys * rows;
  if (evens_out(problem)) return rounds * problem.keys * rows;
  // Multiprocessors that the last round leaves begin to decode other sequences, of which half of
  // the bound's keys are expected. Reading them takes as long as the products of 170 rows.
  constexpr double kDecodingRows = 170 * 0.5;
  double decoding = 0;
  if (problem.batch > 1 && decodes_others(problem, config)) {
    const std::int64_t tiles = std::int64_t{problem.batch - 1} * problem.heads_kv;
    decoding = kDecodingRows * static_cast<double>(tiles) / sm_count;
  }
  return std::max(std::ceil(rounds) * rows - decoding, rounds * rows) * problem.keys;
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

// The row of the fastest whole tiles. -1: none.
int whole_row(const AttentionProblem& problem, const AttentionLengths& lengths, int arch,
              int sm_count) {
  int best = first_sm90_row(problem.traits, arch, lengths);
  if (best < 0) return best;
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
  for_each_sm90_row(problem.traits, arch, {}, [&](int row) {
    const AttentionSm90Config& config = sm90_config_at(row);
    // The speed of rows for windows is that with few keys.
    const bool serves = !config.windows && serves_page(config, lengths.page);
    if (serves && cost_of(problem, row, sm_count) < 0.97 * cost_of(problem, best, sm_count)) {
      best = row;
    }
    return false;
  });
  return best;
}

// How the tiles of a launch of one sequence are cut, see sm90/known_pieces.cuh.
struct AloneCut {
  std::int64_t whole = 0;   // the first tiles, which are not: so many for each CTA
  std::int64_t pieces = 0;  // of each of the others, at most; 0: see sm90/sequence_shares.cuh
  double rounds = 0;        // that take as long as the longest CTA
};

// Cuts the tiles that fill no round, as if all had the same keys. Other launches have equal shares
// of all tiles, and so have those where that serves better; sequence_shares.cuh decides likewise
// for several sequences.
AloneCut cut_alone(const AttentionProblem& problem, const AttentionSm90Config& config,
                   const TileForm& form, int sm_count) {
  const bool is_alone = config.splits && problem.batch == 1 && problem.tokens >= problem.len_q;
  const std::int64_t tiles = form.columns * tiles_of(problem.len_q, form.queries);
  const std::int64_t whole = tiles / sm_count * sm_count, rest = tiles - whole;
  if (!is_alone || rest == 0) return {};
  const std::int64_t most = sm_count / rest, steps = tiles_of(problem.keys, config.block_kv);
  constexpr std::int64_t kEnds = 3;  // of a tile, in steps of keys
  const std::int64_t longest = whole / sm_count * (steps + kEnds) + tiles_of(steps, most);
  const std::int64_t share = tiles_of(tiles * (steps + kEnds), sm_count);
  // Equal shares begin anywhere, so that CTAs read the same keys at different times.
  if (longest > share + share / 8 + tiles_of(kLeastSplitKeys, config.block_kv)) return {};
  const std::int64_t pieces =
      std::clamp<std::int64_t>(tiles_of(problem.keys, kAttentionLeastAloneKeys), 1, most);
  return {whole, pieces, static_cast<double>(longest) / static_cast<double>(steps)};
}

// Whether sequences differ: they have far fewer queries than if each had as many as it may have.
bool is_mixed(const AttentionProblem& problem) {
  return 4 * problem.tokens < std::int64_t{3} * problem.batch * problem.len_q;
}

// The time of shares of a row's tiles, cut one by one or end to end, as cost_of().
double cost_of_shares(const AttentionProblem& problem, int row, int sm_count) {
  const AttentionSm90Config& config = sm90_config_at(row);
  const TileForm form = form_of(problem, config, sm_count);
  const AloneCut cut = cut_alone(problem, config, form, sm_count);
  const double keys = problem.keys, rows = rows_of(config);
  // Shares cost this beside their products, in products of rows and keys. A tile of three math
  // warpgroups is joined row by row, see templates/attention/sm90/combine_rows.cuh: that takes 3 us
  // longer, and 0.5 to 1 us for each piece of a tile.
  double ends = 333e3;
  if (config.block_q > 128) {
    const std::int64_t tiles = std::max<std::int64_t>(form.tiles, 1);
    ends += 50e3 + 8e3 * static_cast<double>(cut.pieces > 0 ? cut.pieces : sm_count / tiles + 1);
  }
  if (cut.pieces > 0) return cut.rounds * keys * rows + ends;
  // Equal shares read the same keys at different times, and each head its own. Whole tiles of
  // several sequences even out better than their rounds say.
  const double traffic = form.heads == 1 ? 1.1 : problem.batch > 1 ? 1.03 : 1.0;
  return (static_cast<double>(form.tiles) / sm_count * keys * rows + ends) * traffic;
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
  if (rounds <= 1 && !may_fill) return true;
  if (evens_out(problem)) return false;
  // A single round takes as long as the longest tile, while the others' multiprocessors wait.
  if (is_mixed(problem) && rounds_of(problem, sm90_config_at(whole), sm_count) <= 1) return true;
  return cost_of_shares(problem, shared, sm_count) < 0.97 * cost_of(problem, whole, sm_count);
}

// -1: none.
int varlen_row(const AttentionProblem& problem, int page, int arch, int sm_count, bool may_split) {
  // Where a result may not depend on bounds, they choose no row.
  if (problem.whole_tiles) {
    return first_sm90_row(problem.traits, arch, {0x7fffffff, 0x7fffffff, false, page});
  }
  AttentionLengths lengths = lengths_of(problem);
  lengths.page = page;
  const int whole = whole_row(problem, lengths, arch, sm_count);
  if (whole < 0 || !may_split) return whole;
  const int shared = shared_row(problem, lengths, arch, sm_count);
  return shared >= 0 && shares_keys(problem, whole, shared, sm_count) ? shared : whole;
}

// Completes a step of whichever row; false if it does not serve the call.
bool fill_row(Step& step, const AttentionProblem& problem, const runtime::Device& device, int row,
              int page, bool may_split, std::size_t& workspace) {
  const int arch = arch_of(device), sm_count = device.info().sm_count;
  AttentionVarlenParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  const AttentionSm90Config& config = sm90_config_at(row);
  const bool are_bytes = config.factors == AttentionFactors::bytes;
  if (!have_maps(params, are_bytes ? 1 : size_of(problem.traits.q))) return false;
  const TileForm form = form_of(problem, config, sm_count);
  const std::int64_t tiles = form.columns * (problem.tokens / form.queries + problem.batch);
  if (tiles > 0x7fffffff - 2 * sm_count) return false;
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
  int box_rows = config.block_kv;
  if (config.factors == AttentionFactors::widened) {
    box_rows = 0;
  } else if (page > 0) {
    // The largest power of two that divides both.
    const auto both = static_cast<unsigned>(page | config.block_kv);
    box_rows = static_cast<int>(both & -both);
    if (box_rows < kLeastBoxRows) box_rows = 0;
  }
  if (box_rows == 0) {
    if (are_bytes) return false;  // no warps are left that gather
    if (!can_gather(params, size_of(problem.traits.k))) return false;
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
  AttentionVarlenParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  const bool is_paged = problem.traits.storage == Storage::paged;
  // Padding moves the keys of a tile, so that its boxes would straddle pages.
  const int page = !is_paged ? 0 : problem.padded_keys ? 1 : params.page_size;
  const int row = varlen_row(problem, page, arch_of(device), device.info().sm_count, may_split);
  return row >= 0 && fill_row(step, problem, device, row, page, may_split, workspace);
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
  const bool has_few = problem.keys >= std::max(4 * problem.len_q, 8192);
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
    if (fill_row(step, problem, device, row, 0, true, problem.recipe.workspace_bytes)) return true;
    step.arguments.set_params(before);
  }
  problem.traits.storage = Storage::dense, problem.tokens = 0;
  return false;
}

}  // namespace kiln
