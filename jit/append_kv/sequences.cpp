#include "jit/append_kv/sequences.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "jit/append_kv/arguments.h"
#include "jit/append_kv/checks.h"

namespace kiln {
namespace {

void check_new(const char* name, const TensorView& tensor, const TensorView& cache,
               const AppendSequences& t, const AppendProblem& problem) {
  const Subject subject{problem.op, name};
  check_given(subject, tensor, problem);
  check_dtype(subject, tensor, t.k_cache.dtype, " like k_cache");
  check_shape(subject, tensor,
              {t.cache_seqlens.shape[0], t.key.shape[1], cache.shape[2], cache.shape[3]});
  check_last_stride(subject, tensor);
}

void check_rotation(const AppendSequences& t, AppendProblem& problem) {
  if (!t.cos.given()) return;
  check_angles("rotary_cos", t.cos, "rotary_cos", t.cos, problem);
  check_angles("rotary_sin", t.sin, "rotary_cos", t.cos, problem);
  AppendTraits& traits = problem.traits;
  traits.query = true;
  traits.table = t.cos.dtype;
  traits.rotary = static_cast<std::uint16_t>(2 * t.cos.shape[1]);
  traits.interleaved = t.interleaved;
}

// Offsets of the second struct hold for both, because `call` comes first.
std::array<AppendArgument, 12> sequence_arguments(const AppendSequences& t) {
  using enum Accessed;
  static_assert(offsetof(AppendSequencesParams, call) == 0);
  return {{
      {"k_new", &t.key, Use::read, offsetof(AppendParams, key)},
      {"v_new", &t.value, Use::read, offsetof(AppendParams, value)},
      {"k_cache", &t.k_cache, Use::written, offsetof(AppendParams, k_cache)},
      {"v_cache", &t.v_cache, Use::written, offsetof(AppendParams, v_cache)},
      {"q", &t.query, Use::replaceable, offsetof(AppendParams, query)},
      {"out", &t.query_out, Use::written, offsetof(AppendParams, query_out)},
      {"rotary_cos", &t.cos, Use::read, offsetof(AppendParams, cos), by_angles},
      {"rotary_sin", &t.sin, Use::read, offsetof(AppendParams, sin), by_angles},
      {"cache_seqlens", &t.cache_seqlens, Use::read, offsetof(AppendSequencesParams, cache_seqlens),
       by_elements},
      {t.kv_indices.given() ? "kv_indices" : "block_table",
       t.kv_indices.given() ? &t.kv_indices : &t.block_table, Use::read,
       offsetof(AppendSequencesParams, block_table), by_elements},
      {"kv_indptr", &t.kv_indptr, Use::read, offsetof(AppendSequencesParams, kv_indptr),
       by_elements},
      {"cache_batch_idx", &t.cache_batch_idx, Use::read,
       offsetof(AppendSequencesParams, cache_batch_idx), by_elements},
  }};
}

int at_most_int(std::int64_t size) {
  return static_cast<int>(std::min<std::int64_t>(size, std::numeric_limits<int>::max()));
}

AppendSequencesParams sequence_params(const AppendSequences& t, const AppendProblem& problem,
                                      int len) {
  const auto numbers = [](const TensorView& view) { return static_cast<const int*>(view.data); };
  AppendSequencesParams s{};
  AppendParams& p = s.call;
  p.key = t.key.data, p.value = t.value.data;
  p.k_cache = t.k_cache.data, p.v_cache = t.v_cache.data;
  p.query = t.query.data, p.query_out = t.query_out.data;
  p.cos = t.cos.data, p.sin = t.sin.data;
  p.key_at = token_strides(t.key), p.value_at = token_strides(t.value);
  p.query_at = token_strides(t.query), p.query_out_at = token_strides(t.query_out);
  p.k_cache_at = cache_strides(t.k_cache), p.v_cache_at = cache_strides(t.v_cache);
  p.cos_stride = dimension_stride(t.cos, 0), p.sin_stride = dimension_stride(t.sin, 0);
  p.tokens = problem.tokens, p.heads = problem.heads, p.heads_kv = problem.heads_kv;
  p.page_size = std::max(at_most_int(t.k_cache.shape[1]), 1);
  p.cache_slots = static_cast<int>(t.k_cache.shape[0] * t.k_cache.shape[1]);
  p.max_positions = t.cos.given() ? static_cast<int>(t.cos.shape[0]) : 0;
  s.cache_seqlens = numbers(t.cache_seqlens);
  s.block_table = numbers(t.kv_indices.given() ? t.kv_indices : t.block_table);
  s.kv_indptr = numbers(t.kv_indptr);
  s.cache_batch_idx = numbers(t.cache_batch_idx);
  if (t.block_table.given()) {
    s.block_table_row = dimension_stride(t.block_table, 0);
    s.width = at_most_int(t.block_table.shape[1]);
  }
  s.len = len;
  s.len_new = static_cast<int>(t.key.shape[1]);
  s.len_query = t.query.given() ? static_cast<int>(t.query.shape[1]) : 0;
  s.queries_advance = t.queries_advance ? 1 : 0;
  return s;
}

}  // namespace

void check_append_sequences(const AppendSequences& t, AppendProblem& problem) {
  if (is_quantized(t.k_cache.dtype)) {
    throw_value({problem.op, "k_new"},
                "must not be given with a quantised cache; jit.append_kv quantises new keys, in a "
                "call before this one");
  }
  check_new("k_new", t.key, t.k_cache, t, problem);
  check_new("v_new", t.value, t.v_cache, t, problem);
  check_written({problem.op, "k_cache"}, t.k_cache);
  check_written({problem.op, "v_cache"}, t.v_cache);
  check_slot_count(t.k_cache, problem);
  AppendTraits& traits = problem.traits;
  traits.input = t.key.dtype, traits.cache = t.k_cache.dtype;
  traits.head_dim = static_cast<std::uint16_t>(t.key.shape[3]);
  traits.head_dim_v = static_cast<std::uint16_t>(t.value.shape[3]);
  traits.sequences = true;
  check_rotation(t, problem);
  // As many tokens of each sequence as the longer one of keys and queries has.
  const std::int64_t len = std::max(t.key.shape[1], t.query.given() ? t.query.shape[1] : 0);
  check_heads_of_tokens("k_new", t.cache_seqlens.shape[0] * len,
                        t.query.given() ? t.query.shape[2] : 0, t.key.shape[2], problem);
  const auto list = sequence_arguments(t);
  settle_vector(list, traits);
  problem.arguments().set_params(sequence_params(t, problem, static_cast<int>(len)));
  add_append_arguments(list, problem);
}

}  // namespace kiln
