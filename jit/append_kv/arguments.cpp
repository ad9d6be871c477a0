#include "jit/append_kv/arguments.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "jit/op/checks.h"
#include "templates/append_kv/params.h"

namespace kiln {
namespace {

constexpr int kAppendVectorBytes = 16;

// In Plan::launch's order.
std::array<AppendArgument, 14> arguments_of(const AppendTensors& t) {
  using enum Accessed;
  const AppendKvOptions& o = t.options;
  return {{
      {"key", &t.key, Use::read, offsetof(AppendParams, key)},
      {"value", &t.value, Use::read, offsetof(AppendParams, value)},
      {"k_cache", &t.k_cache, Use::written, offsetof(AppendParams, k_cache)},
      {"v_cache", &t.v_cache, Use::written, offsetof(AppendParams, v_cache)},
      {"slot_mapping", &t.slot_mapping, Use::read, offsetof(AppendParams, slots), by_elements},
      {"query", &o.query, Use::replaceable, offsetof(AppendParams, query)},
      {"query_out", &o.query_out, Use::written, offsetof(AppendParams, query_out)},
      {"q_weight", &o.q_weight, Use::read, offsetof(AppendParams, q_weight)},
      {"k_weight", &o.k_weight, Use::read, offsetof(AppendParams, k_weight)},
      {"positions", &o.positions, Use::read, offsetof(AppendParams, positions), by_elements},
      {"cos", &o.cos, Use::read, offsetof(AppendParams, cos), by_angles},
      {"sin", &o.sin, Use::read, offsetof(AppendParams, sin), by_angles},
      {"k_scale", &o.k_scale, Use::read, offsetof(AppendParams, k_scale), by_elements},
      {"v_scale", &o.v_scale, Use::read, offsetof(AppendParams, v_scale), by_elements},
  }};
}

// The bytes that an access has of a tensor.
int access_bytes(const AppendArgument& argument, const AppendTraits& traits, int vector) {
  int elements = vector;
  if (argument.accessed == Accessed::by_elements) elements = 1;
  if (argument.accessed == Accessed::by_angles && traits.interleaved) {
    elements = std::max(vector / 2, 1);
  }
  return std::min(elements * size_of(argument.tensor->dtype), kAppendVectorBytes);
}

bool admits_access(const AppendArgument& argument, const AppendTraits& traits, int vector) {
  if (!argument.tensor->given() || argument.accessed == Accessed::by_elements) return true;
  return rows_admit(*argument.tensor, access_bytes(argument, traits, vector));
}

AppendParams params_of(const AppendTensors& t, const AppendProblem& problem) {
  const AppendKvOptions& o = t.options;
  AppendParams p{};
  p.key = t.key.data, p.value = t.value.data;
  p.k_cache = t.k_cache.data, p.v_cache = t.v_cache.data;
  p.slots = static_cast<const long long*>(t.slot_mapping.data);
  p.query = o.query.data, p.query_out = o.query_out.data;
  p.q_weight = o.q_weight.data, p.k_weight = o.k_weight.data;
  p.positions = o.positions.data, p.cos = o.cos.data, p.sin = o.sin.data;
  p.k_scale = static_cast<const float*>(o.k_scale.data);
  p.v_scale = static_cast<const float*>(o.v_scale.data);
  p.key_at = token_strides(t.key), p.value_at = token_strides(t.value);
  p.query_at = token_strides(o.query), p.query_out_at = token_strides(o.query_out);
  p.k_cache_at = cache_strides(t.k_cache), p.v_cache_at = cache_strides(t.v_cache);
  p.slots_stride = dimension_stride(t.slot_mapping, 0);
  p.positions_stride = dimension_stride(o.positions, 0);
  p.cos_stride = dimension_stride(o.cos, 0), p.sin_stride = dimension_stride(o.sin, 0);
  p.k_scale_stride = dimension_stride(o.k_scale, 0);
  p.v_scale_stride = dimension_stride(o.v_scale, 0);
  p.tokens = problem.tokens, p.heads = problem.heads, p.heads_kv = problem.heads_kv;
  // An empty cache has no slot, whatever the size of its pages.
  p.page_size = static_cast<int>(std::clamp<std::int64_t>(t.k_cache.shape[1], 1, 0x7fffffff));
  p.cache_slots = static_cast<int>(t.k_cache.shape[0] * t.k_cache.shape[1]);
  p.max_positions = o.cos.given() ? static_cast<int>(o.cos.shape[0]) : 0;
  p.wide_positions = o.positions.dtype == DType::i64;
  p.eps = o.eps;
  return p;
}

}  // namespace

TokenStrides token_strides(const TensorView& tensor) {
  if (!tensor.given()) return {0, 0, 0};
  const int token = tensor.rank - 3;
  return {token != 0 ? dimension_stride(tensor, 0) : 0, dimension_stride(tensor, token),
          dimension_stride(tensor, token + 1)};
}

CacheStrides cache_strides(const TensorView& cache) {
  return {dimension_stride(cache, 0), dimension_stride(cache, 1), dimension_stride(cache, 2)};
}

void settle_vector(std::span<const AppendArgument> list, AppendTraits& traits) {
  int vector = kAppendVectorBytes / size_of(traits.input);
  while (vector > 1 && (!admits_vector(traits, vector) ||
                        !std::ranges::all_of(list, [&](const AppendArgument& argument) {
                          return admits_access(argument, traits, vector);
                        }))) {
    vector /= 2;
  }
  traits.vector = static_cast<std::uint16_t>(vector);
}

void add_append_arguments(std::span<const AppendArgument> list, AppendProblem& problem) {
  CallArguments& arguments = problem.arguments();
  for (const AppendArgument& argument : list) {
    if (!argument.tensor->given()) continue;
    problem.add_tensor(argument.pointer, {argument.name, argument.tensor, argument.use});
    const int bytes = access_bytes(argument, problem.traits, problem.traits.vector);
    arguments.require_alignment(arguments.pointers() - 1, static_cast<std::size_t>(bytes));
  }
}

void set_append_arguments(const AppendTensors& tensors, AppendProblem& problem) {
  const auto list = arguments_of(tensors);
  settle_vector(list, problem.traits);
  problem.arguments().set_params(params_of(tensors, problem));
  add_append_arguments(list, problem);
}

}  // namespace kiln
