#include "jit/attention/sm90_varlen_cost.h"

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

// Larger groups have one query in a tile, or none.
constexpr int kMostGroup = 64;

// The keys that a query sees in the mean, as a part of the most. A third of those that a sequence
// may have are expected where nothing says more: shares of whole tiles' work lose up to a sixth
// where these had served better, but whole tiles take up to 2.4 times as long as shares.
double mean_keys(const AttentionProblem& problem) {
  const double all = problem.key_tokens > 0 ? static_cast<double>(problem.key_tokens)
                                            : problem.len_kv / 3.0 * problem.batch;
  return std::min(1.0, all / problem.batch / std::max(problem.keys, 1));
}

// The time in which all tiles end that multiprocessors draw in order of their length, of which
// there are `rounds` for each: their lengths fall evenly from `longest` to `shortest`. The tiles of
// an odd round end one after another, the longest last, and those of the next one after each other
// in the other order: both together end at the same time.
double time_of_drawn(double rounds, double longest, double shortest) {
  if (rounds <= 1) return longest;
  const double whole = std::floor(rounds), pairs = std::floor(whole / 2);
  const auto length_at = [&](double round) {
    return longest - (longest - shortest) * round / rounds;
  };
  const double paired = 2 * pairs * (longest - (longest - shortest) * pairs / rounds);
  const bool has_rest = rounds > whole;
  if (whole == 2 * pairs) return paired + (has_rest ? length_at(whole) : 0);
  return paired + std::max(length_at(whole - 1), has_rest ? 2 * length_at(whole) : 0);
}

// A tile takes as long as so many more keys would, at its beginning and its end.
constexpr double kTileEnds = 600;
// In a triangle, tiles of two math warpgroups are slower beside those of three than with many keys.
constexpr double kTwoGroups = 0.93;

double cost_of_drawn(const AttentionProblem& problem, const AttentionSm90Config& config,
                     int sm_count) {
  const TileForm form = form_of(problem, config, sm_count);
  const double hidden = static_cast<double>(problem.tokens - form.queries);
  const double longest = problem.keys + kTileEnds;
  const double shortest = std::max(longest - hidden, kTileEnds);
  const double rounds = static_cast<double>(form.tiles) / sm_count;
  const double speed = config.block_q > 128 ? 1.0 : kTwoGroups;
  return time_of_drawn(rounds, longest, std::min(shortest, longest)) * rows_of(config) / speed;
}

}  // namespace

bool have_equal_queries(const AttentionProblem& problem) {
  return problem.tokens == std::int64_t{problem.batch} * problem.len_q;
}

bool decodes_others(const AttentionProblem& problem, const AttentionSm90Config& config) {
  return !have_equal_queries(problem) &&
         rows_of_others(problem) <= (config.splits ? kDecodedRowsBesideShares : kDecodedRows);
}

bool evens_out(const AttentionProblem& problem) {
  return problem.traits.mask != Mask::none && problem.len_kv < 2 * problem.len_q;
}

bool is_triangle(const AttentionProblem& problem) {
  return evens_out(problem) && !is_narrow_window(problem);
}

bool is_drawn_triangle(const AttentionProblem& problem) {
  return is_triangle(problem) && problem.batch == 1 && problem.traits.head_dim > 64;
}

bool is_mixed(const AttentionProblem& problem) {
  const std::int64_t batch = problem.batch;
  return 4 * problem.tokens < 3 * batch * problem.len_q ||
         (batch > 1 && problem.key_tokens > 0 &&
          4 * problem.key_tokens < 3 * batch * problem.len_kv);
}

bool has_mixed_tiles(const AttentionProblem& problem) {
  return is_mixed(problem) && problem.batch > 1 && !evens_out(problem) &&
         rows_of_others(problem) > kDecodedRows;
}

TileForm::TileForm(const AttentionProblem& problem, int tile_heads,
                   const AttentionSm90Config& config)
    : heads(tile_heads),
      queries(config.block_q / tile_heads),
      columns(tile_heads > 1 ? problem.heads_kv : problem.heads) {
  tiles = tiles_of(std::min<std::int64_t>(problem.len_q, problem.tokens), queries);
  if (!decodes_others(problem, config)) {
    tiles += (problem.batch - 1) * tiles_of(queries_of_others(problem), queries);
  }
  tiles *= columns;
}

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

double rounds_of(const AttentionProblem& problem, const AttentionSm90Config& config, int sm_count) {
  return static_cast<double>(form_of(problem, config, sm_count).tiles) / sm_count;
}

double rows_of(const AttentionSm90Config& config) { return config.block_q * 100.0 / config.speed; }

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

double cost_of_whole(const AttentionProblem& problem, int row, int sm_count) {
  const AttentionSm90Config& config = sm90_config_at(row);
  const double rounds = rounds_of(problem, config, sm_count), rows = rows_of(config);
  // The longest tiles come first: all end with them, or with a part of a short one. In 739 mixed
  // batches by a seed, simulated, this and cost_of_shares() chose 1.0 % from the better form.
  if (has_mixed_tiles(problem)) {
    const double filled = rounds * mean_keys(problem);
    return std::max(1.0, filled + 0.5 / std::max(filled, 1.0)) * problem.keys * rows;
  }
  if (is_drawn_triangle(problem)) return cost_of_drawn(problem, config, sm_count);
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
  const double part = has_mixed_tiles(problem) ? mean_keys(problem) : 1;
  return (static_cast<double>(form.tiles) / sm_count * keys * part * rows + ends) * traffic;
}

}  // namespace kiln
