#include "jit/attention/copy_keys.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "jit/attention/family.h"
#include "jit/attention/gathered_rows.h"
#include "jit/attention/paths.h"
#include "jit/attention/sm90_rows.h"
#include "jit/attention/sm90_varlen_cost.h"
#include "jit/op/arch.h"
#include "templates/attention/params.h"
#include "templates/copy_keys/params.h"

namespace kiln {
namespace {

using CopyParams = CopyKeysParams<AttentionVarlenParams>;

// The copied keys of a call may take so much memory: those of 128k keys of 8 heads of 128 columns
// do.
constexpr std::size_t kMostBytes = std::size_t{512} << 20;

// Below so many rows of query heads for each key, in the mean, and so many pairs of both, the
// launch takes longer than what it saves.
struct LeastWork {
  double rows, pairs;
};
// Quantised caches, by 52 calls, each of three head dims, e4m3, on an H200: wide heads save a third
// of their time, others a sixth, and shares of few queries' keys less than that.
constexpr LeastWork kLeastWide{768, 1 << 24}, kLeastOfMany{1024, 1 << 25},
    kLeastOfFew{1700, 1 << 25};
// Pages whose rows are gathered, and boxes of 8 rows, by 25 calls there: rows in random order save
// a sixth of the time, and rows that follow one another, of which the host does not know, nothing;
// such boxes save a tenth, but nothing with wide heads.
constexpr LeastWork kLeastGathered{6000, 1 << 27}, kLeastOfSmallBoxes{8000, 1 << 27};
// A tile of queries reads as many more keys than one of them sees.
constexpr double kTileRows = 192;
constexpr int kMostTileKeys = 128;   // of the sm_90a kernels' tiles
constexpr int kTileKeysFactor = 16;  // it divides the keys of all of these tiles

std::size_t rounded(std::size_t bytes) { return (bytes + 127) / 128 * 128; }

// The copied keys and values take so many bytes of the workspace.
struct CopiedBytes {
  std::size_t keys, values;
  std::size_t all() const { return keys + values; }
};
CopiedBytes bytes_of(const AttentionProblem& problem) {
  const auto rows = static_cast<std::size_t>(problem.batch) *
                    static_cast<std::size_t>(problem.heads_kv) *
                    static_cast<std::size_t>(problem.len_kv);
  return {rounded(rows * problem.traits.head_dim * 2),
          rounded(rows * problem.traits.head_dim_v * 2)};
}

bool has_wide_heads(const AttentionTraits& traits) {
  return std::max(traits.head_dim, traits.head_dim_v) > 128;
}

// The least work for which a call's keys are copied; none: they never are.
std::optional<LeastWork> least_work(const AttentionProblem& problem) {
  const AttentionTraits& traits = problem.traits;
  if (traits.has_quantized_cache()) {
    if (has_wide_heads(traits)) return kLeastWide;
    return evens_out(problem) ? kLeastOfMany : kLeastOfFew;
  }
  // The host does not know which keys a variant's mask leaves.
  if (traits.variant_masks()) return {};
  const int box = box_rows_of(page_of(problem), kTileKeysFactor);
  if (box == 0) return kLeastGathered;
  if (box == kLeastBoxRows && !has_wide_heads(traits)) return kLeastOfSmallBoxes;
  return {};
}

}  // namespace

AttentionTraits traits_of_copied(const AttentionTraits& traits) {
  AttentionTraits copied = traits;
  copied.k = copied.v = traits.q;
  copied.storage = Storage::ragged;
  copied.widened_ahead = traits.has_quantized_cache();
  return copied;
}

bool may_copy(const AttentionTraits& traits, int arch) {
  const bool may_read = traits.has_quantized_cache()
                            ? !traits.byte_queries && traits.storage != Storage::dense &&
                                  traits.head_dim % 16 == 0 && traits.head_dim_v % 16 == 0
                            : traits.storage == Storage::paged && traits.aligned;
  return may_read &&
         first_sm90_row(traits_of_copied(traits), arch, {0x7fffffff, 0x7fffffff, false}) >= 0;
}

bool CopiedCall::pays(const AttentionProblem& problem, int arch, bool may_use_workspace) {
  if (!may_use_workspace || problem.whole_tiles || problem.batch == 0 || problem.len_kv == 0) {
    return false;
  }
  // The host does not know which keys a variant's mask leaves.
  const bool is_narrow = is_narrow_window(problem);
  if (is_narrow && problem.traits.mask != Mask::window) return false;
  if (!may_copy(problem.traits, arch) || bytes_of(problem).all() > kMostBytes) return false;
  const std::optional<LeastWork> least = least_work(problem);
  if (!least) return false;
  const double queries = static_cast<double>(problem.tokens) / problem.batch;
  const double read = (is_triangle(problem) ? problem.keys / 2.0 : problem.keys) + kTileRows;
  const double copied = std::min<double>(problem.len_kv, queries + problem.keys);
  const double rows = queries * static_cast<double>(group_of(problem)) * read / copied;
  return rows >= least->rows &&
         static_cast<double>(problem.tokens) * problem.heads * read >= least->pairs;
}

CopiedCall::CopiedCall(AttentionProblem& problem)
    : problem_(problem), traits_(problem.traits), before_(problem.recipe.first()) {
  AttentionVarlenParams params;
  CallArguments& arguments = problem.arguments();
  std::memcpy(&params, arguments.bytes().data(), sizeof params);
  const std::int64_t rows = problem.len_kv, heads = problem.heads_kv;
  AttentionParams& p = params.call;
  p.k = p.v = nullptr;
  p.k_row = traits_.head_dim, p.k_head = rows * p.k_row, p.k_batch = heads * p.k_head;
  p.v_row = traits_.head_dim_v, p.v_head = rows * p.v_row, p.v_batch = heads * p.v_head;
  params.block_table = params.kv_indptr = params.cache_batch_idx = nullptr;
  params.block_table_row = 0, params.packed_keys = 0;
  params.page = {};
  params.rows_k = problem.len_kv, params.entries_k = problem.batch;
  arguments.set_value(0, params);
  for (const std::size_t offset :
       {offsetof(AttentionParams, k), offsetof(AttentionParams, v),
        offsetof(AttentionVarlenParams, block_table), offsetof(AttentionVarlenParams, kv_indptr),
        offsetof(AttentionVarlenParams, cache_batch_idx)}) {
    arguments.drop_pointer(offset);
  }
  problem.traits = traits_of_copied(traits_);
}

void CopiedCall::undo() {
  problem_.recipe.first() = before_;
  problem_.traits = traits_;
}

void CopiedCall::set_workspace() {
  problem_.traits = traits_;
  const CopiedBytes bytes = bytes_of(problem_);
  begin_ = rounded(problem_.recipe.workspace_bytes);
  problem_.recipe.workspace_bytes = begin_ + bytes.all();
  CallArguments& reads = problem_.arguments();
  if (reads.wants_workspace()) {
    reads.extend_workspace(begin_ + bytes.all());
    reads.add_workspace_pointer(offsetof(AttentionParams, k), begin_);
  } else {
    reads.want_workspace(offsetof(AttentionParams, k), begin_, bytes.all());
  }
  reads.add_workspace_pointer(offsetof(AttentionParams, v), begin_ + bytes.keys);
}

void CopiedCall::add_launch(int arch) {
  const CopiedBytes bytes = bytes_of(problem_);
  CopyParams params{};
  std::memcpy(&params.call, before_.arguments.bytes().data(), sizeof params.call);
  // Another launch decodes sequences of fewer rows, and reads the cache.
  AttentionVarlenParams first;
  std::memcpy(&first, problem_.arguments().bytes().data(), sizeof first);
  params.call.least_rows = first.least_rows;
  params.rows = problem_.len_kv;
  // A tile of keys that a window begins in is read as a whole.
  params.reach = is_narrow_window(problem_) ? problem_.keys + kMostTileKeys : problem_.len_kv;
  params.head_dim = traits_.head_dim, params.head_dim_v = traits_.head_dim_v;
  Step& step = problem_.recipe.add();
  step.spec = key_copier(traits_, arch);
  step.blocks = grid_of(copy_keys_ctas(problem_.batch, problem_.heads_kv, problem_.len_kv));
  step.prepares = true;
  step.arguments.set_params(params);
  for (std::size_t i = 0; i < before_.arguments.pointers(); ++i) {
    const std::size_t offset = before_.arguments.pointer_offset(i);
    const bool is_keys =
        offset == offsetof(AttentionParams, k) || offset == offsetof(AttentionParams, v);
    const bool is_place = offset >= offsetof(AttentionVarlenParams, cu_seqlens_q) &&
                          offset <= offsetof(AttentionVarlenParams, cache_leftpad);
    if (is_keys || is_place) step.arguments.copy_pointer(before_.arguments, i);
  }
  step.arguments.want_workspace(offsetof(CopyParams, k), begin_, bytes.all());
  step.arguments.add_workspace_pointer(offsetof(CopyParams, v), begin_ + bytes.keys);
}

std::vector<Specialization> kernels_of_copied(const AttentionTraits& traits, int arch) {
  if (!may_copy(traits, arch)) return {};
  std::vector<Specialization> specs = {key_copier(traits, arch)};
  const AttentionTraits copied = traits_of_copied(traits);
  for (const int row : attention_sm90_rows(copied, arch)) {
    specs.emplace_back(kFlashAttentionSm90, arch, row, copied);
  }
  return specs;
}

}  // namespace kiln
