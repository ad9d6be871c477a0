// Where sequences have lengths of their own: which kernels a call launches, on which grids. The
// host knows bounds of lengths and numbers of tokens alone, so that what it chooses serves any
// lengths within them.
#include <algorithm>
#include <cstddef>
#include <optional>

#include "jit/attention/config.h"
#include "jit/attention/copy_keys.h"
#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/attention/plan.h"
#include "jit/attention/sequence_tensors.h"
#include "jit/attention/sm90_rows.h"
#include "jit/op/arch.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

constexpr int kUnbounded = 0x7fffffff;

// How many CTAs keep all multiprocessors busy, and how many run at a time: a decoding one has
// enough loads under way for its multiprocessor, but where there is much to do, a second one hides
// its beginning and its end.
struct Ctas {
  long long few, all;
};
Ctas ctas_of(const AttentionConfig& config, int sm_count) {
  const long long all = static_cast<long long>(sm_count) * config.residents;
  return {config.teams > 1 ? sm_count : all, all};
}

long long tiles_of(const AttentionProblem& problem, int block_q) {
  return attention_varlen_tiles(problem.batch, problem.tokens, problem.heads, problem.heads_kv,
                                block_q);
}

std::int64_t most_tokens(const AttentionProblem& problem) {
  return std::int64_t{problem.batch} * problem.len_q;
}

// A launch of one sequence of up to a tile's rows: how many CTAs its keys are cut for is known
// here.
void set_alone(CallArguments& arguments, const AttentionProblem& problem,
               const AttentionConfig& config, long long few) {
  const std::int64_t rows = problem.len_q * group_of(problem);
  const bool serves = config.teams > 1 && config.block_q <= 32 && rows <= config.block_q;
  if (problem.batch != 1 || !serves || problem.heads_kv == 0 || problem.heads_kv > few) return;
  long long most = few / problem.heads_kv;
  // Sixteen partial results are joined at a time: one or two more take as long as sixteen.
  if (most > 16 && most % 16 <= most / 16) most -= most % 16;
  arguments.set_value(offsetof(AttentionVarlenParams, alone), divisor_of(most));
}

// Fills a step of the recipe for sequences of `least` to `most` rows.
void fill(Step& step, AttentionProblem& problem, int arch, int row, int least, int most,
          int sm_count, bool may_split) {
  const AttentionConfig& config = attention_config(row);
  const AttentionTraits& traits = problem.traits;
  step.spec = Specialization(kFlashAttentionVarlen, arch, row, traits);
  const long long tiles = tiles_of(problem, config.block_q);
  Ctas ctas = ctas_of(config, sm_count);
  // As an sm_90a kernel ends, multiprocessors become free one by one, and each gets as many
  // neighbouring CTAs as fit: of CTAs of which the first half has all the work, half of the
  // multiprocessors would have none.
  if (step.programmatic) ctas.few = ctas.all;
  // Four tiles for each CTA that runs at a time even out by themselves.
  const bool is_many = config.teams == 1 && tiles >= 4 * ctas.all;
  const bool whole = problem.whole_tiles || !may_split || is_many;
  step.blocks = grid_of(whole ? tiles : ctas.all);
  CallArguments& arguments = step.arguments;
  arguments.set_int(offsetof(AttentionVarlenParams, least_rows), least);
  arguments.set_int(offsetof(AttentionVarlenParams, most_rows), most);
  arguments.set_int(offsetof(AttentionVarlenParams, whole_tiles), whole ? 1 : 0);
  arguments.set_int(offsetof(AttentionVarlenParams, few_ctas), static_cast<int>(ctas.few));
  set_plan(step, config, problem);
  if (whole) return;
  set_alone(arguments, problem, config, ctas.few);
  const auto bytes = static_cast<std::size_t>(
      attention_varlen_workspace_bytes(step.blocks, config.block_q, traits.head_dim_v));
  // Behind the workspace of the launch before, beside which this one may run.
  const std::size_t begin = (problem.recipe.workspace_bytes + 15) / 16 * 16;
  problem.recipe.workspace_bytes = begin + bytes;
  arguments.want_workspace(
      offsetof(AttentionVarlenParams, call) + offsetof(AttentionParams, workspace), begin, bytes,
      offsetof(AttentionVarlenParams, call) + offsetof(AttentionParams, nonce));
}

// The row for sequences of up to 16 rows: one CTA on each multiprocessor if they are few, unless a
// result may not depend on how many there are.
int decode_row(const AttentionProblem& problem, int arch, int sm_count) {
  const long long tiles = static_cast<long long>(problem.batch) * problem.heads_kv;
  const bool are_few = tiles <= sm_count && !problem.whole_tiles;
  const int alone = are_few ? row_of_kind(RowKind::decode_alone, problem.traits, arch) : -1;
  return alone >= 0 ? alone : row_of_kind(RowKind::decode, problem.traits, arch);
}

// The row for sequences of up to so many rows; -1: none, they are many.
int short_row(const AttentionProblem& problem, std::int64_t rows, int arch, int sm_count) {
  if (rows <= 16) return decode_row(problem, arch, sm_count);
  if (rows > 64 || problem.whole_tiles) return -1;
  return row_of_kind(rows <= 32 ? RowKind::decode_32 : RowKind::decode_64, problem.traits, arch);
}

// Whether such a row is the fastest where all sequences have so many rows at most. From 33 on,
// tiles of sm_90a that have rows of all heads take less time, though they are half empty.
bool prefers_short_row(const AttentionProblem& problem, std::int64_t rows, int arch) {
  if (rows <= 32) return true;
  const AttentionTraits& traits = problem.traits;
  return traits.has_quantized_cache() ||
         first_sm90_row(traits, arch, lengths_of(problem), {.grouped = true}) < 0;
}

// Completes the recipe by the sm_90a kernel and, for short sequences beside long ones, by another
// launch; false if it does not serve the call.
bool resolve_varlen_sm90(AttentionProblem& problem, const runtime::Device& device, bool may_split,
                         bool all_are_long) {
  const int arch = arch_of(device), sm_count = device.info().sm_count;
  Step& first = problem.recipe.first();
  std::optional<CopiedCall> copied;
  if (CopiedCall::pays(problem, arch, may_split)) copied.emplace(problem);
  if (!fill_varlen_sm90(first, problem, device, may_split, problem.recipe.workspace_bytes)) {
    if (copied) copied->undo();
    return false;
  }
  if (copied) copied->set_workspace();
  const bool shares = sm90_config_at(first.spec.row()).splits;
  const int decoded = shares ? kDecodedRowsBesideShares : kDecodedRows;
  const std::int64_t others = rows_of_others(problem);
  // Where most sequences have many rows, another launch takes longer than tiles of few rows, whose
  // keys CTAs share as those of others.
  const bool are_many = others > decoded && 2 * problem.tokens >= most_tokens(problem);
  const bool is_alone = all_are_long || (shares && are_many);
  if (!is_alone) {
    first.arguments.set_int(offsetof(AttentionVarlenParams, least_rows), decoded + 1);
  }
  set_plan_sm90(first, problem);
  if (!is_alone) {
    Step& second = problem.recipe.add();
    second = copied ? copied->before() : first;
    second.programmatic = may_overlap(arch);
    // Where the others have many rows, those that are left for this launch may have any number.
    const int row = others > decoded ? -1 : short_row(problem, others, arch, sm_count);
    fill(second, problem, arch, row >= 0 ? row : decode_row(problem, arch, sm_count), 0, decoded,
         sm_count, may_split);
  }
  if (copied) copied->add_launch(arch);
  return true;
}

}  // namespace

std::vector<int> varlen_rows(const AttentionTraits& traits, int arch) {
  if (traits.storage == Storage::dense || traits.widened_ahead) return {};
  constexpr RowKind kKinds[] = {RowKind::decode, RowKind::decode_alone, RowKind::decode_32,
                                RowKind::decode_64, RowKind::few};
  return rows_of_kinds(kKinds, traits, arch);
}

bool resolve_varlen(AttentionProblem& problem, const runtime::Device& device, bool may_split) {
  const AttentionTraits& traits = problem.traits;
  if (traits.storage == Storage::dense) return false;
  const int arch = arch_of(device), sm_count = device.info().sm_count;
  const auto add = [&](Step& step, int row, int least, int most) {
    fill(step, problem, arch, row, least, most, sm_count, may_split);
  };
  // All sequences may have as many queries as the bound says: one of them, or those of a tensor
  // with a batch dimension, have. Where a result may not depend on the bound, sequences of so many
  // rows have one kernel, and others another.
  const bool all_are_long = !problem.whole_tiles && problem.tokens >= most_tokens(problem);
  const std::int64_t rows = problem.len_q * group_of(problem);
  const int of_short = short_row(problem, rows, arch, sm_count);
  const bool is_short = of_short >= 0 && prefers_short_row(problem, rows, arch);
  if (!is_short && resolve_varlen_sm90(problem, device, may_split, all_are_long)) return true;
  Step& first = problem.recipe.first();
  if (of_short >= 0) {
    add(first, of_short, 0, kUnbounded);
    return true;
  }
  const int few = row_of_kind(RowKind::few, traits, arch);
  if (all_are_long) {
    add(first, few, 0, kUnbounded);
    return true;
  }
  Step& second = problem.recipe.add();
  second = first;
  add(first, few, 17, kUnbounded);
  // The first launch, of mma.sync too, lets no CTA of this one start before all of its own have
  // ended: only the set-up overlaps.
  second.programmatic = may_overlap(arch);
  add(second, row_of_kind(RowKind::decode, traits, arch), 0, 16);
  return true;
}

}  // namespace kiln
