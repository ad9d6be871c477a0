#include "jit/append_kv/problem.h"

#include <cmath>
#include <limits>

#include "jit/append_kv/arguments.h"
#include "jit/append_kv/checks.h"

namespace kiln {
namespace {

constexpr std::int64_t kMostAppendedDim = 512;
constexpr std::int64_t kMostInt = std::numeric_limits<std::int32_t>::max();

// key, value or query: [tokens, heads, head_dim]. Returns the head dim.
std::uint16_t check_heads(const char* name, const TensorView& tensor, const char* layout,
                          const AppendProblem& problem) {
  const Subject subject{problem.op, name};
  check_given(subject, tensor, problem);
  check_rank(subject, tensor, 3, layout);
  check_last_stride(subject, tensor);
  const std::int64_t dim = tensor.shape[2];
  if (dim % 2 != 0 || dim > kMostAppendedDim || dim == 0) {
    throw_value(subject, "must have an even head dim up to 512, got " + shape_text(tensor));
  }
  return static_cast<std::uint16_t>(dim);
}

void check_key_and_value(const TensorView& key, const TensorView& value, AppendProblem& problem) {
  const Subject of_key{problem.op, "key"};
  problem.device_ordinal = check_tensor(of_key, key, -1);
  if (!is_half(key.dtype)) {
    throw_type(of_key, std::string("must be float16 or bfloat16, got ") + name(key.dtype));
  }
  AppendTraits& traits = problem.traits;
  traits.input = key.dtype;
  traits.head_dim = check_heads("key", key, "[tokens, heads_kv, head_dim]", problem);
  check_given({problem.op, "value"}, value, problem);
  check_dtype({problem.op, "value"}, value, key.dtype, " like key");
  traits.head_dim_v = check_heads("value", value, "[tokens, heads_kv, head_dim_v]", problem);
  check_shape({problem.op, "value"}, value, {key.shape[0], key.shape[1], value.shape[2]});
}

void check_slots(const TensorView& slots, const TensorView& key, AppendProblem& problem) {
  const Subject subject{problem.op, "slot_mapping"};
  check_given(subject, slots, problem);
  check_dtype(subject, slots, DType::i64, "");
  check_rank(subject, slots, 1, "[tokens]");
  if (slots.shape[0] > key.shape[0]) {
    throw_value(subject, "must have at most as many tokens as key, which has " +
                             std::to_string(key.shape[0]) + ", got " + shape_text(slots));
  }
}

void check_cache(const char* name, const TensorView& cache, const TensorView& k_cache,
                 const TensorView& like, const AppendProblem& problem) {
  const Subject subject{problem.op, name};
  check_given(subject, cache, problem);
  check_rank(subject, cache, 4, "[pages, page_size, heads_kv, head_dim]");
  if (cache.dtype != problem.traits.input && !is_quantized(cache.dtype)) {
    throw_type(subject, std::string("must have key's dtype, ") + kiln::name(problem.traits.input) +
                            ", or be float8_e4m3fn, float8_e5m2 or int8, got " +
                            kiln::name(cache.dtype));
  }
  check_dtype(subject, cache, k_cache.dtype, " like k_cache");
  check_shape(subject, cache, {k_cache.shape[0], k_cache.shape[1], like.shape[1], like.shape[2]});
  check_last_stride(subject, cache);
  check_written(subject, cache);
}

void check_caches(const TensorView& k_cache, const TensorView& v_cache, const TensorView& key,
                  const TensorView& value, AppendProblem& problem) {
  check_cache("k_cache", k_cache, k_cache, key, problem);
  check_cache("v_cache", v_cache, k_cache, value, problem);
  check_slot_count(k_cache, problem);
  problem.traits.cache = k_cache.dtype;
}

void check_scale(const char* name, const TensorView& scale, const AppendProblem& problem) {
  if (!scale.given()) return;
  const Subject subject{problem.op, name};
  if (!is_quantized(problem.traits.cache)) {
    throw_value(subject, std::string("is of quantised caches, and this one is ") +
                             kiln::name(problem.traits.cache) + "; leave it out");
  }
  check_given(subject, scale, problem);
  check_dtype(subject, scale, DType::f32, "");
  const bool fits =
      scale.rank == 0 ||
      (scale.rank == 1 && (scale.shape[0] == 1 || scale.shape[0] == problem.heads_kv));
  if (!fits) {
    throw_value(subject, "must have shape [] or [1] (one for all heads) or [" +
                             std::to_string(problem.heads_kv) + "] (one for each), got " +
                             shape_text(scale));
  }
}

void check_query(const TensorView& key, const AppendKvOptions& options, AppendProblem& problem) {
  const TensorView &query = options.query, &out = options.query_out;
  problem.traits.query = query.given();
  if (!query.given()) {
    if (out.given() || options.q_weight.given()) {
      throw_value({problem.op, out.given() ? "query_out" : "q_weight"},
                  "is of the query: give query too");
    }
    return;
  }
  check_heads("query", query, "[tokens, heads, head_dim]", problem);
  check_dtype({problem.op, "query"}, query, key.dtype, " like key");
  check_shape({problem.op, "query"}, query, {key.shape[0], query.shape[1], key.shape[2]});
  if (!out.given()) {
    throw_value({problem.op, "query_out"}, "is missing: give a tensor like query, or query itself");
  }
  const Subject subject{problem.op, "query_out"};
  check_given(subject, out, problem);
  check_dtype(subject, out, key.dtype, " like key");
  check_shape(subject, out, {query.shape[0], query.shape[1], query.shape[2]});
  check_last_stride(subject, out);
  check_written(subject, out);
}

void check_weight(const char* name, const TensorView& weight, AppendProblem& problem) {
  if (!weight.given()) return;
  const Subject subject{problem.op, name};
  check_given(subject, weight, problem);
  check_float(subject, weight);
  DType& dtype = problem.traits.weight;
  if (dtype != DType::none) check_dtype(subject, weight, dtype, " like q_weight");
  dtype = weight.dtype;
  check_shape(subject, weight, {problem.traits.head_dim});
  check_last_stride(subject, weight);
}

void check_rotary(const AppendKvOptions& options, AppendProblem& problem) {
  const bool all = options.positions.given() && options.cos.given() && options.sin.given();
  const bool none = !options.positions.given() && !options.cos.given() && !options.sin.given();
  if (none) return;
  if (!all) {
    throw_value({problem.op, "positions"}, "goes with cos and sin: give all three, or none");
  }
  const Subject subject{problem.op, "positions"};
  const TensorView& positions = options.positions;
  check_given(subject, positions, problem);
  if (positions.dtype != DType::i32 && positions.dtype != DType::i64) {
    throw_type(subject, std::string("must be int32 or int64, got ") + name(positions.dtype));
  }
  check_rank(subject, positions, 1, "[tokens]");
  if (positions.shape[0] < problem.tokens) {
    throw_value(subject, "must have at least as many tokens as slot_mapping, which has " +
                             std::to_string(problem.tokens) + ", got " + shape_text(positions));
  }
  check_angles("cos", options.cos, "cos", options.cos, problem);
  check_angles("sin", options.sin, "cos", options.cos, problem);
  problem.traits.table = options.cos.dtype;
  problem.traits.rotary = static_cast<std::uint16_t>(2 * options.cos.shape[1]);
  problem.traits.interleaved = options.interleaved;
}

}  // namespace

void check_heads_of_tokens(const char* name, std::int64_t tokens, std::int64_t heads,
                           std::int64_t heads_kv, AppendProblem& problem) {
  const std::int64_t most = kMostInt / std::max<std::int64_t>(tokens, 1);
  if (heads > most || heads_kv > most || heads + 2 * heads_kv > most) {
    throw_value({problem.op, name}, "must have at most 2^31 - 1 heads of all tokens, got " +
                                        std::to_string(tokens) + " tokens; split the call");
  }
  problem.tokens = static_cast<int>(tokens);
  problem.heads = static_cast<int>(heads), problem.heads_kv = static_cast<int>(heads_kv);
}

void check_slot_count(const TensorView& k_cache, const AppendProblem& problem) {
  std::int64_t slots = 0;
  if (!__builtin_mul_overflow(k_cache.shape[0], k_cache.shape[1], &slots) && slots <= kMostInt) {
    return;
  }
  throw_value({problem.op, "k_cache"},
              "must have at most 2^31 - 1 slots, pages * page_size, got " + shape_text(k_cache));
}

void check_angles(const char* name, const TensorView& table, const char* cos_name,
                  const TensorView& cos, const AppendProblem& problem) {
  const Subject subject{problem.op, name};
  check_given(subject, table, problem);
  check_rank(subject, table, 2, "[max_position, angles]");
  const DType input = problem.traits.input;
  if (table.dtype != DType::f32 && table.dtype != input) {
    throw_type(subject, std::string("must be float32 or key's dtype, ") + kiln::name(input) +
                            ", got " + kiln::name(table.dtype));
  }
  check_dtype(subject, table, cos.dtype, (std::string(" like ") + cos_name).c_str());
  check_shape(subject, table, {cos.shape[0], cos.shape[1]});
  check_last_stride(subject, table);
  const bool fits = table.shape[0] >= 1 && table.shape[0] <= kMostInt && table.shape[1] >= 1 &&
                    2 * table.shape[1] <= problem.traits.head_dim;
  if (!fits) {
    throw_value(subject, "must have at least one position, and angles for at most a head dim of " +
                             std::to_string(problem.traits.head_dim) + ", two elements each, got " +
                             shape_text(table));
  }
}

bool admits_vector(const AppendTraits& traits, int vector) {
  const int pair = 2 * vector;
  if (traits.head_dim % pair != 0 || traits.head_dim_v % pair != 0) return false;
  if (traits.rotary == 0 || vector == 1) return true;
  if (traits.interleaved) return traits.rotary % vector == 0;
  return traits.rotary % pair == 0 && (traits.head_dim - traits.rotary) % pair == 0;
}

void check_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                     const TensorView& v_cache, const TensorView& slot_mapping,
                     const AppendKvOptions& options, AppendProblem& problem) {
  check_key_and_value(key, value, problem);
  check_slots(slot_mapping, key, problem);
  check_caches(k_cache, v_cache, key, value, problem);
  check_query(key, options, problem);
  check_heads_of_tokens("slot_mapping", slot_mapping.shape[0],
                        options.query.given() ? options.query.shape[1] : 0, key.shape[1], problem);
  check_scale("k_scale", options.k_scale, problem);
  check_scale("v_scale", options.v_scale, problem);
  check_weight("q_weight", options.q_weight, problem);
  check_weight("k_weight", options.k_weight, problem);
  check_rotary(options, problem);
  if (!std::isfinite(options.eps)) {
    throw_value({problem.op, "eps"}, "must be a finite number, got " + number_text(options.eps));
  }
  if (options.eps < 0) {
    throw_value({problem.op, "eps"}, "must not be negative, got " + number_text(options.eps));
  }
  set_append_arguments({key, value, k_cache, v_cache, slot_mapping, options}, problem);
  check_overlaps(problem);
}

TensorView append_kv_query_out(const TensorView& query) {
  const Subject subject{"append_kv", "query"};
  check_view(subject, query);
  check_rank(subject, query, 3, "[tokens, heads, head_dim]");
  return result_like(query);
}

}  // namespace kiln
