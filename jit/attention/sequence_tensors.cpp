#include "jit/attention/sequence_tensors.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "jit/attention/tensor_checks.h"

namespace kiln {
namespace {

constexpr int kMostTreeQueries = 64;

const int* numbers_of(const TensorView& t) { return static_cast<const int*>(t.data); }

// A row for each sequence, unless cache_batch_idx says which row is whose.
bool has_rows(std::int64_t rows, const SequenceTensors& s, const AttentionProblem& problem) {
  return s.cache_batch_idx.given() || rows == problem.batch;
}

void check_block_table(const SequenceTensors& s, const AttentionProblem& problem) {
  const Subject subject{problem.names.op, "block_table"};
  check_indices(subject.name, s.block_table, {}, problem);
  check_rank(subject, s.block_table, 2, "[batch, pages]");
  if (!has_rows(s.block_table.shape[0], s, problem)) {
    throw_value(subject, "must have a row for each of " + std::to_string(problem.batch) +
                             " sequences, got " + shape_text(s.block_table));
  }
}

void check_page_lists(const SequenceTensors& s, const AttentionProblem& problem) {
  const Subject subject{problem.names.op, "kv_indptr"};
  if (s.block_table.given()) {
    throw_value(subject, "stands in the place of a block_table: give one of them");
  }
  if (!s.kv_indptr.given() || !s.kv_indices.given()) {
    throw_value(subject, "goes with kv_indices: give both, or a block_table");
  }
  check_indices("kv_indptr", s.kv_indptr, {}, problem);
  check_indices("kv_indices", s.kv_indices, {}, problem);
  check_rank(subject, s.kv_indptr, 1, "[batch + 1]");
  check_rank({problem.names.op, "kv_indices"}, s.kv_indices, 1, "[pages of all sequences]");
  if (!has_rows(s.kv_indptr.shape[0] - 1, s, problem)) {
    throw_value(subject, "must have batch + 1 entries for " + std::to_string(problem.batch) +
                             " sequences, got " + shape_text(s.kv_indptr));
  }
}

}  // namespace

AttentionDivisor divisor_of(std::int64_t by) {
  const auto divisor = static_cast<std::uint64_t>(by);
  const int shift = std::bit_width(divisor - 1);
  const std::uint64_t factor = ((std::uint64_t{1} << (31 + shift)) + divisor - 1) / divisor;
  return {static_cast<int>(by), static_cast<unsigned>(factor), shift};
}

void set_sizes(const AttentionProblem& problem, std::int64_t rows, std::int64_t entries,
               AttentionVarlenParams& params) {
  constexpr int kAnyRows = 0x7fffffff;
  params.group = divisor_of(std::max(problem.heads / std::max(problem.heads_kv, 1), 1));
  params.most_rows = kAnyRows;
  params.tokens = static_cast<int>(problem.tokens);
  params.rows_k = static_cast<int>(rows);
  params.entries_k = static_cast<int>(entries);
}

void check_places(const SequenceTensors& s, const AttentionProblem& problem) {
  check_indices("cache_batch_idx", s.cache_batch_idx, {problem.batch}, problem);
  check_indices("cache_leftpad", s.cache_leftpad, {problem.batch}, problem);
  if (s.kv_indptr.given() || s.kv_indices.given()) {
    check_page_lists(s, problem);
  } else if (s.block_table.given()) {
    check_block_table(s, problem);
  }
}

void set_places(const SequenceTensors& s, AttentionVarlenParams& p) {
  p.block_table = numbers_of(s.kv_indices.given() ? s.kv_indices : s.block_table);
  p.block_table_row = s.block_table.given() ? s.block_table.strides[0] : 1;
  p.kv_indptr = numbers_of(s.kv_indptr);
  p.cache_batch_idx = numbers_of(s.cache_batch_idx);
  p.cache_leftpad = numbers_of(s.cache_leftpad);
}

void add_places(const SequenceTensors& s, AttentionProblem& problem) {
  problem.padded_keys = s.cache_leftpad.given();
  const auto add = [&](std::size_t offset, const char* name, const TensorView& tensor) {
    if (tensor.given()) problem.add_tensor(offset, {name, &tensor, Use::read});
  };
  add(offsetof(AttentionVarlenParams, block_table), "block_table", s.block_table);
  add(offsetof(AttentionVarlenParams, block_table), "kv_indices", s.kv_indices);
  add(offsetof(AttentionVarlenParams, kv_indptr), "kv_indptr", s.kv_indptr);
  add(offsetof(AttentionVarlenParams, cache_batch_idx), "cache_batch_idx", s.cache_batch_idx);
  add(offsetof(AttentionVarlenParams, cache_leftpad), "cache_leftpad", s.cache_leftpad);
  add(offsetof(AttentionVarlenParams, spread) + offsetof(AttentionSpread, totals),
      "cp_seqused_k_total", s.context.seqused_k_total);
}

std::int64_t most_pages(const TensorView& block_table, const TensorView& kv_indices) {
  if (kv_indices.given() && kv_indices.rank == 1) return kv_indices.shape[0];
  return block_table.given() && block_table.rank == 2 ? block_table.shape[1] : 1;
}

int new_keys_of(const KvCacheOptions& options, const AttentionProblem& problem) {
  const char* const op = problem.names.op;
  if (options.k_new.given() != options.v_new.given()) {
    throw_value({op, "k_new"}, "goes with v_new: give both, or none");
  }
  if (options.rotary_cos.given() != options.rotary_sin.given()) {
    throw_value({op, "rotary_cos"}, "goes with rotary_sin: give both, or none");
  }
  if (!options.k_new.given()) {
    if (!options.rotary_cos.given()) return 0;
    throw_value({op, "rotary_cos"},
                "is of the new keys and their queries: give k_new and v_new too");
  }
  check_tensor({op, "k_new"}, options.k_new, problem.device_ordinal);
  check_rank({op, "k_new"}, options.k_new, 4, "[batch, len_new, heads_kv, head_dim]");
  return check_length({op, "k_new"}, options.k_new.shape[1], "rows");
}

void check_rotated(const TensorView& q, const TensorView& out, const AttentionProblem& problem) {
  if (out.dtype != q.dtype) {
    throw_value({problem.names.op, "rotary_cos"},
                "must not be given with out_scale, because rotated queries lie in out until they "
                "are read; rotate with jit.append_kv before the call");
  }
  const std::int64_t head_dim = q.shape[q.rank - 1], head_dim_v = out.shape[out.rank - 1];
  if (head_dim_v >= head_dim) return;
  throw_value({problem.names.op, "rotary_cos"},
              "needs values whose head dim is at least q's, because rotated queries lie in out "
              "until they are read; got " +
                  std::to_string(head_dim_v) + " for " + std::to_string(head_dim) +
                  "; rotate with jit.append_kv before the call");
}

void check_causal_each(const TensorView& flags, bool causal, AttentionProblem& problem) {
  if (!flags.given()) return;
  check_indices("causal", flags, {problem.batch}, problem);  // its name in Python
  if (causal) {
    throw_value({problem.names.op, "causal_each"},
                "says which sequences are causal: leave causal as it is");
  }
  problem.causal_each = &flags;
}

void check_tree_mask(const TensorView& q, const SequenceTensors& s, const AttentionOptions& options,
                     AttentionProblem& problem) {
  if (!s.tree_mask.given()) return;
  const Subject subject{problem.names.op, "tree_mask"};
  check_tensor(subject, s.tree_mask, problem.device_ordinal);
  if (s.tree_mask.dtype != DType::i64 && s.tree_mask.dtype != DType::u64) {
    throw_type(subject, std::string("must be int64 or uint64, got ") + name(s.tree_mask.dtype));
  }
  if (q.rank == 3) {
    check_shape(subject, s.tree_mask, {q.shape[0]});
  } else {
    check_shape(subject, s.tree_mask, {q.shape[0], q.shape[1]});
  }
  check_data(subject, s.tree_mask, problem.may_be_null);
  if (options.causal || s.causal_each.given()) {
    throw_value(subject, "says which new keys each query sees: leave causal as it is");
  }
  if (options.window_left != -1 || options.window_right != -1) {
    throw_value(subject,
                "must not be given with a window, which counts keys along a sequence and "
                "not along a branch of a tree");
  }
  if (s.rotates) {
    throw_value(subject,
                "must not be given with rotary_cos, which would rotate siblings as if "
                "they followed each other; rotate with jit.append_kv before the call");
  }
  if (problem.len_q > kMostTreeQueries) {
    throw_value(subject,
                "has 64 bits for each query, so that sequences have at most 64 of them, "
                "got a bound of " +
                    std::to_string(problem.len_q) + "; compute longer ones in another call");
  }
  problem.tree_mask = &s.tree_mask;
}

}  // namespace kiln
