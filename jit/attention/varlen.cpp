#include "jit/attention/varlen.h"

#include <algorithm>
#include <utility>

#include "jit/attention/cache_scales.h"
#include "jit/attention/context_parallel.h"
#include "jit/attention/plan.h"
#include "jit/attention/sequence_tensors.h"
#include "jit/attention/tensor_checks.h"
#include "jit/attention/variant_arguments.h"
#include "jit/op/checks.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

// The last three dimensions of a tensor of rows, and the one before them.
struct RowDims {
  std::int64_t rows, heads, dim;
  std::int64_t row, head, batch;  // strides; 0 for a dimension that is missing

  explicit RowDims(const TensorView& t)
      : rows(t.shape[t.rank - 3]),
        heads(t.shape[t.rank - 2]),
        dim(t.shape[t.rank - 1]),
        row(t.strides[t.rank - 3]),
        head(t.strides[t.rank - 2]),
        batch(t.rank == 4 ? t.strides[0] : 0) {}
};

void check_rows(Subject subject, const TensorView& t, const AttentionProblem& problem) {
  check_tensor(subject, t, problem.device_ordinal);
  check_last_stride(subject, t);
  check_data(subject, t, problem.may_be_null);
}

void check_keys(const TensorView& q, const TensorView& k, const TensorView& v,
                const SequenceTensors& sequences, AttentionProblem& problem) {
  const AttentionNames& names = problem.names;
  const bool is_cache = sequences.is_paged() || k.rank == 4;
  const char* const layout = is_cache ? kCacheLayout : kPackedLayout;
  for (auto [argument, tensor] : {std::pair{names.k, &k}, {names.v, &v}}) {
    check_rows({names.op, argument}, *tensor, problem);
    check_rank({names.op, argument}, *tensor, is_cache ? 4 : 3, layout);
  }
  check_cache_dtypes(q, k, v, problem);
  const RowDims keys(k), values(v);
  if (keys.dim != q.shape[q.rank - 1]) {
    throw_value({names.op, names.k}, std::string("must have the head dim of ") + names.q +
                                         ", which is " + shape_text(q) + "; it is " +
                                         shape_text(k));
  }
  for (int i = 0; i + 1 < k.rank; ++i) {
    if (v.shape[i] == k.shape[i]) continue;
    throw_value({names.op, names.v}, std::string("must have the shape of ") + names.k +
                                         " but for the head dim, which is " + shape_text(k) +
                                         "; it is " + shape_text(v));
  }
  check_head_dims({names.op, names.q}, {names.op, names.v}, keys.dim, values.dim);
  problem.heads_kv = static_cast<int>(keys.heads);
  check_heads({names.op, names.q}, names.k, q.shape[q.rank - 2], keys.heads);
  const Subject of_k{names.op, names.k};
  check_length(of_k, keys.rows, sequences.is_paged() ? "rows in a page" : "rows");
  if (is_cache) check_length(of_k, k.shape[0], sequences.is_paged() ? "pages" : "batch entries");
  if (sequences.is_paged()) {
    if (keys.rows == 0) throw_value({names.op, names.k}, "has pages of no rows");
  } else if (is_cache && !sequences.cache_batch_idx.given() && k.shape[0] != problem.batch) {
    throw_value({names.op, names.k},
                "must have one entry for each of " + std::to_string(problem.batch) +
                    " sequences, got " + shape_text(k) +
                    (sequences.same_lengths ? "" : "; pages need a block_table"));
  }
}

// How long each sequence is must be said once, and by what fits the storage.
void check_sequences(const TensorView& k, const SequenceTensors& s, AttentionProblem& problem) {
  const std::int64_t batch = problem.batch;
  check_indices("cu_seqlens_q", s.cu_seqlens_q, {batch + 1}, problem);
  check_indices("cu_seqlens_k", s.cu_seqlens_k, {batch + 1}, problem);
  check_indices(s.seqused_name, s.seqused_k, {batch}, problem);
  check_places(s, problem);
  if (k.rank == 3 && !s.cu_seqlens_k.given()) {
    throw_value({problem.names.op, "cu_seqlens_k"},
                std::string("is needed where ") + problem.names.k + " is packed, " + kPackedLayout);
  }
  if (!s.cu_seqlens_k.given() && !s.seqused_k.given() && !s.same_lengths) {
    throw_value({problem.names.op, s.seqused_name},
                std::string(s.cu_seqlens_q.given() ? "or cu_seqlens_k " : "") +
                    "is needed: how many keys of the cache each sequence has");
  }
}

void check_options(const AttentionOptions& options, std::int64_t splits,
                   const AttentionProblem& problem) {
  const char* const op = problem.names.op;
  if (options.layout != AttentionLayout::bshd) {
    throw_value({op, "layout"}, "must be left as it is; head-major tensors are permuted views");
  }
  if (options.top_left) {
    throw_value({op, "top_left"},
                "must be left as it is; causal masks end at each sequence's last key");
  }
  if (options.attn_mask.given()) {
    throw_value({op, "attn_mask"}, "must not be given; a jit.Variant can mask such sequences");
  }
  if (splits != 0 && splits != 1) {
    throw_value({op, "num_splits"}, "must be 0 (as many as fill the device) or 1 (none), got " +
                                        std::to_string(splits));
  }
  if (options.variant == nullptr) return;
  const Variant& variant = options.variant->variant();
  if (const VariantTensor* const tensor = tensor_indexed_by(variant, "q")) {
    throw_value({op, "variant"}, "has tensor '" + tensor->name +
                                     "', which is indexed by q; sequences end at different "
                                     "keys, so index it by row or kv");
  }
}

void check_results(const TensorView& q, const TensorView& out, const TensorView& lse,
                   const TensorView& out_scale, std::int64_t dim_v, AttentionProblem& problem) {
  const char* const op = problem.names.op;
  check_rows({op, "out"}, out, problem);
  check_out_scale(out_scale, q.dtype, out, problem);
  if (q.rank == 3) {
    check_shape({op, "out"}, out, {q.shape[0], q.shape[1], dim_v});
  } else {
    check_shape({op, "out"}, out, {q.shape[0], q.shape[1], q.shape[2], dim_v});
  }
  check_written({op, "out"}, out);
  if (!lse.given()) return;
  if (q.rank == 3) return check_lse(lse, {q.shape[1], q.shape[0]}, problem);
  check_lse(lse, {q.shape[0], q.shape[2], q.shape[1]}, problem);
}

// Queries that lie in out's rows, which may be longer.
TensorView rows_of_q(TensorView out, const TensorView& q) {
  out.shape[out.rank - 1] = q.shape[q.rank - 1];
  return out;
}

void set_params(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& out, const TensorView& lse, const SequenceTensors& sequences,
                const CacheScales& scales, const AttentionOptions& options,
                AttentionProblem& problem) {
  const RowDims queries(sequences.rotates ? out : q), keys(k), values(v), results(out);
  const auto indices = [](const TensorView& t) { return static_cast<const int*>(t.data); };
  AttentionVarlenParams p{};
  AttentionParams& c = p.call;
  c.q = sequences.rotates ? out.data : q.data, c.k = k.data, c.v = v.data, c.out = out.data;
  c.lse = static_cast<float*>(lse.data);
  c.q_batch = queries.batch, c.q_row = queries.row, c.q_head = queries.head;
  c.k_batch = keys.batch, c.k_row = keys.row, c.k_head = keys.head;
  c.v_batch = values.batch, c.v_row = values.row, c.v_head = values.head;
  c.out_batch = results.batch, c.out_row = results.row, c.out_head = results.head;
  if (lse.given()) {
    c.lse_batch = lse.rank == 3 ? lse.strides[0] : 0;
    c.lse_head = lse.strides[lse.rank - 2];
  }
  c.batch = problem.batch, c.heads = problem.heads, c.heads_kv = problem.heads_kv;
  c.len_q = problem.len_q, c.len_kv = problem.len_kv;
  c.splits = 1;
  c.scale = checked_scale({problem.names.op, "scale"}, options.scale, q.shape[q.rank - 1]);
  p.cu_seqlens_q = indices(sequences.cu_seqlens_q);
  p.cu_seqlens_k = indices(sequences.cu_seqlens_k);
  p.seqused_k = indices(sequences.seqused_k);
  set_places(sequences, p);
  if (sequences.is_paged()) p.page = divisor_of(keys.rows);
  set_context(sequences.context, p);
  p.new_keys = sequences.new_keys;
  p.packed_keys = k.rank == 3 ? 1 : 0;
  p.packed_queries = q.rank == 3 ? 1 : 0;
  set_sizes(problem, keys.rows, k.rank == 4 ? k.shape[0] : 1, p);
  problem.key_tokens = k.rank == 3 ? k.shape[0] : 0;
  set_scales(scales, p);
  if (!problem.ignores_plan) p.plan = static_cast<unsigned*>(sequences.plan.data);
  problem.arguments().set_params(p);
  const CallTensor given_q{problem.names.q, &q, Use::replaceable};
  if (sequences.rotates) {
    problem.arguments().add_pointer(offsetof(AttentionParams, q), rows_of_q(out, q), false, 1,
                                    kOutNumber);
    problem.tensors.add(given_q);
  } else {
    problem.add_tensor(offsetof(AttentionParams, q), given_q);
  }
  problem.add_tensor(offsetof(AttentionParams, k), {problem.names.k, &k, Use::read});
  problem.add_tensor(offsetof(AttentionParams, v), {problem.names.v, &v, Use::read});
  problem.add_tensor(offsetof(AttentionParams, out), {"out", &out, Use::written});
  if (lse.given()) {
    problem.add_tensor(offsetof(AttentionParams, lse), {"lse", &lse, Use::written});
  }
  const auto add = [&](std::size_t offset, const char* name, const TensorView& tensor) {
    if (tensor.given()) problem.add_tensor(offset, {name, &tensor, Use::read});
  };
  add(offsetof(AttentionVarlenParams, cu_seqlens_q), "cu_seqlens_q", sequences.cu_seqlens_q);
  add(offsetof(AttentionVarlenParams, cu_seqlens_k), "cu_seqlens_k", sequences.cu_seqlens_k);
  add(offsetof(AttentionVarlenParams, seqused_k), sequences.seqused_name, sequences.seqused_k);
  add_places(sequences, problem);
  add_scales(scales, problem);
  add_plan(sequences.plan, options, sequences, problem);
}

// The checks that both operations share, once the number of sequences and their bounds are known.
void check_call(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& out, const TensorView& lse, const SequenceTensors& sequences,
                const TensorView& out_scale, std::int64_t splits, const AttentionOptions& options,
                AttentionProblem& problem) {
  const CacheScales scales{options.q_scale, options.k_scale, options.v_scale, out_scale};
  check_options(options, splits, problem);
  problem.whole_tiles = splits == 1;
  problem.heads = check_length({problem.names.op, problem.names.q}, q.shape[q.rank - 2], "heads");
  check_keys(q, k, v, sequences, problem);
  check_sequences(k, sequences, problem);
  check_context(sequences.context, sequences, options, problem);
  check_scales(scales, k.dtype, problem);
  const std::int64_t dim_v = v.shape[v.rank - 1];
  check_results(q, out, lse, scales.out, dim_v, problem);
  if (sequences.rotates) check_rotated(q, out, problem);
  problem.keys = problem.len_kv;
  problem.ignores_plan =
      sequences.plan.given() && !problem.makes_plan && !are_as_planned(q, k, v, out);
  set_params(q, k, v, out, lse, sequences, scales, options, problem);
  AttentionTraits& traits = problem.traits;
  traits.byte_queries = is_f8(q.dtype);
  traits.set_dtype(!traits.byte_queries ? q.dtype : is_half(out.dtype) ? out.dtype : DType::bf16);
  traits.k = traits.v = k.dtype;
  traits.out = out.dtype;
  traits.storage = sequences.is_paged() ? Storage::paged : Storage::ragged;
  traits.head_dim = static_cast<std::uint16_t>(q.shape[q.rank - 1]);
  traits.head_dim_v = static_cast<std::uint16_t>(dim_v);
  settle_alignment(sequences.rotates ? out : q, k, v, out, problem);
  check_causal_each(sequences.causal_each, options.causal, problem);
  check_tree_mask(q, sequences, options, problem);
  add_variants(options, problem);
  traits.spread = is_spread(sequences.context, problem);
  check_overlaps(problem);
}

// The first check of a call: q decides about the device and the dtype.
void check_queries(const TensorView& q, int rank, const char* layout, AttentionProblem& problem) {
  const Subject subject{problem.names.op, problem.names.q};
  problem.device_ordinal = check_tensor(subject, q, -1);
  if (!is_half(q.dtype) && !is_f8(q.dtype)) {
    throw_type(subject,
               std::string("must be float16, bfloat16, float8_e4m3fn or float8_e5m2, got ") +
                   name(q.dtype) + "; cast the inputs to one of them");
  }
  check_rank(subject, q, rank, layout);
  check_last_stride(subject, q);
  check_data(subject, q, problem.may_be_null);
}

int bound(const char* name, std::int64_t value, const AttentionProblem& problem) {
  const Subject subject{problem.names.op, name};
  if (value < 0) throw_value(subject, "must be 0 or more, got " + std::to_string(value));
  return check_length(subject, value, "rows");
}

}  // namespace

void check_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                  const TensorView& out, const TensorView& lse, const VarlenOptions& options,
                  AttentionProblem& problem) {
  check_queries(q, 3, kPackedLayout, problem);
  const Subject subject{problem.names.op, "cu_seqlens_q"};
  if (!options.cu_seqlens_q.given()) throw_value(subject, "is needed, [batch + 1]");
  check_tensor(subject, options.cu_seqlens_q, problem.device_ordinal);
  check_rank(subject, options.cu_seqlens_q, 1, "[batch + 1]");
  if (options.cu_seqlens_q.shape[0] == 0) {
    throw_value(subject, "must have batch + 1 entries, got none");
  }
  problem.batch = check_length(subject, options.cu_seqlens_q.shape[0] - 1, "sequences");
  problem.tokens = check_length({problem.names.op, problem.names.q}, q.shape[0], "rows");
  problem.len_q = bound("max_seqlen_q", options.max_seqlen_q, problem);
  problem.len_kv = bound("max_seqlen_k", options.max_seqlen_k, problem);
  check_call(q, k, v, out, lse,
             {.cu_seqlens_q = options.cu_seqlens_q,
              .cu_seqlens_k = options.cu_seqlens_k,
              .seqused_k = options.seqused_k,
              .block_table = options.block_table,
              .kv_indptr = options.kv_indptr,
              .kv_indices = options.kv_indices,
              .causal_each = options.causal_each,
              .tree_mask = options.tree_mask,
              .context = options.context,
              .plan = options.plan},
             options.out_scale, options.num_splits, options.attention, problem);
}

void check_byte_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options, RowsFirst& call,
                          AttentionProblem& problem) {
  const AttentionNames& names = problem.names;
  check_layout(options.layout, names.op);
  const bool swaps = options.layout == AttentionLayout::bhsd;
  const auto rows_first = [&](const char* argument, TensorView view) {
    check_view({names.op, argument}, view);
    check_rank({names.op, argument}, view, 4, layout_text(options.layout));
    if (swaps) {
      std::swap(view.shape[1], view.shape[2]);
      std::swap(view.strides[1], view.strides[2]);
    }
    return view;
  };
  call = {rows_first(names.q, q), rows_first(names.k, k), rows_first(names.v, v),
          rows_first("out", out), options};
  call.options.layout = AttentionLayout::bshd;
  check_queries(call.q, 4, kDenseLayout, problem);
  problem.batch = check_length({names.op, names.q}, q.shape[0], "batch entries");
  problem.len_q = check_length({names.op, names.q}, call.q.shape[1], "rows");
  problem.tokens = call.q.shape[0] * call.q.shape[1];
  problem.len_kv = check_length({names.op, names.k}, call.k.shape[1], "rows");
  check_call(call.q, call.k, call.v, call.out, lse, {.same_lengths = true}, kNoTensor, 0,
             call.options, problem);
}

void check_kvcache(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache,
                   const TensorView& out, const TensorView& lse, const KvCacheOptions& options,
                   AttentionProblem& problem) {
  check_queries(q, 4, kDenseLayout, problem);
  const AttentionNames& names = problem.names;
  problem.batch = check_length({names.op, names.q}, q.shape[0], "batch entries");
  problem.len_q = check_length({names.op, names.q}, q.shape[1], "rows");
  problem.tokens = q.shape[0] * q.shape[1];
  check_tensor({names.op, names.k}, k_cache, problem.device_ordinal);
  check_rank({names.op, names.k}, k_cache, 4, kCacheLayout);
  const std::int64_t width = most_pages(options.block_table, options.kv_indices);
  const int rows = check_length({names.op, names.k}, k_cache.shape[1], "rows");
  // A list has the pages of all sequences, so that its length bounds no sequence.
  const std::int64_t whole = rows * std::min(width, kMaxLength);
  const std::int64_t most = options.kv_indices.given() ? std::min(whole, kMaxLength) : whole;
  problem.len_kv = check_length({names.op, names.k}, most, "rows");
  check_call(q, k_cache, v_cache, out, lse,
             {.seqused_k = options.cache_seqlens,
              .seqused_name = "cache_seqlens",
              .block_table = options.block_table,
              .kv_indptr = options.kv_indptr,
              .kv_indices = options.kv_indices,
              .cache_batch_idx = options.cache_batch_idx,
              .cache_leftpad = options.cache_leftpad,
              .causal_each = options.causal_each,
              .tree_mask = options.tree_mask,
              .context = options.context,
              .plan = options.plan,
              .new_keys = new_keys_of(options, problem),
              .rotates = options.k_new.given() && options.rotary_cos.given()},
             options.out_scale, options.num_splits, options.attention, problem);
  // One query sees all keys either way, and models are prewarmed for causal calls.
  Mask& mask = problem.traits.mask;
  if (problem.len_q == 1 && mask == Mask::none) mask = Mask::causal;
}

}  // namespace kiln
