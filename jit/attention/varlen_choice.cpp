// Where sequences have lengths of their own: which kernels a call launches, on which grids. The
// host knows bounds alone, so that what it chooses serves any lengths within them.
#include <algorithm>
#include <cstddef>

#include "jit/attention/config.h"
#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/op/arch.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

constexpr int kDecodeRows = 16;  // of a decode row's tile
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

// Fills a step of the recipe for sequences of `least` to `most` rows.
void fill(Step& step, const AttentionProblem& problem, int arch, int row, int least, int most,
          int sm_count, bool may_split, std::size_t& workspace) {
  const AttentionConfig& config = attention_config(row);
  const AttentionTraits& traits = problem.traits;
  step.spec = Specialization(kFlashAttentionVarlen, arch, row, traits);
  const long long tiles = attention_varlen_tiles(problem.batch, problem.tokens, problem.heads,
                                                 problem.heads_kv, config.block_q);
  const Ctas ctas = ctas_of(config, sm_count);
  // Four tiles for each CTA that runs at a time even out by themselves.
  const bool is_many = config.teams == 1 && tiles >= 4 * ctas.all;
  const bool whole = problem.whole_tiles || !may_split || is_many;
  const long long steps =
      (problem.len_kv + config.teams * config.block_kv - 1) / (config.teams * config.block_kv);
  step.blocks = grid_of(
      std::max(1ll, whole ? tiles : std::min(ctas.all, tiles * (steps + kAttentionVarlenEnds))));
  CallArguments& arguments = step.arguments;
  arguments.set_int(offsetof(AttentionVarlenParams, least_rows), least);
  arguments.set_int(offsetof(AttentionVarlenParams, most_rows), most);
  arguments.set_int(offsetof(AttentionVarlenParams, whole_tiles), whole ? 1 : 0);
  arguments.set_int(offsetof(AttentionVarlenParams, few_ctas), static_cast<int>(ctas.few));
  if (whole) return;
  const auto bytes = static_cast<std::size_t>(
      attention_varlen_workspace_bytes(step.blocks, config.block_q, traits.head_dim_v));
  workspace = std::max(workspace, bytes);
  arguments.want_workspace(offsetof(AttentionVarlenParams, call) +
                               offsetof(AttentionParams, workspace),
                           0, bytes,
                           offsetof(AttentionVarlenParams, call) + offsetof(AttentionParams, nonce));
}

}  // namespace

std::vector<int> varlen_rows(const AttentionTraits& traits, int arch) {
  if (traits.storage == Storage::dense) return {};
  return {row_of_kind(RowKind::decode, traits, arch), row_of_kind(RowKind::few, traits, arch)};
}

bool resolve_varlen(AttentionProblem& problem, const runtime::Device& device, bool may_split) {
  const AttentionTraits& traits = problem.traits;
  if (traits.storage == Storage::dense) return false;
  const int arch = arch_of(device), sm_count = device.info().sm_count;
  const std::int64_t most_rows =
      std::int64_t{problem.len_q} * (problem.heads / std::max(problem.heads_kv, 1));
  const int decode = row_of_kind(RowKind::decode, traits, arch);
  const int few = row_of_kind(RowKind::few, traits, arch);
  Step& first = problem.recipe.first();
  if (most_rows <= kDecodeRows) {
    fill(first, problem, arch, decode, 0, kUnbounded, sm_count, may_split,
         problem.recipe.workspace_bytes);
    return true;
  }
  // All sequences may have as many queries as the bound says; one of them, or those of a tensor
  // with a batch dimension, have. Where a result may not depend on the bound, sequences with few
  // rows are always the decoding kernel's.
  const bool is_even = !problem.whole_tiles &&
                       problem.tokens >= std::int64_t{problem.batch} * problem.len_q;
  if (!is_even) {
    Step& second = problem.recipe.add();
    second = first;
    fill(second, problem, arch, decode, 0, kDecodeRows, sm_count, may_split,
         problem.recipe.workspace_bytes);
  }
  fill(first, problem, arch, few, is_even ? 0 : kDecodeRows + 1, kUnbounded, sm_count, may_split,
       problem.recipe.workspace_bytes);
  return true;
}

}  // namespace kiln
