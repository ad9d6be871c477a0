// The problems of KernelCase for appending to a cache: tokens that fill a CTA and a part of the
// next, more and fewer heads than are on their way at a time and than a group walks over, slots in
// any order, and pages of odd sizes.
#include <algorithm>
#include <cstring>

#include "jit/append_kv/config.h"
#include "jit/append_kv/family.h"
#include "templates/append_kv/params.h"
#include "tests/emulator/kernel_case.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {
namespace {

// What a unit in the last place of 1 is for the dtypes of caches, or what it stands for.
double cache_epsilon(DType dtype, double otherwise) {
  if (dtype == DType::f8_e4m3) return 1.0 / 8;
  if (dtype == DType::f8_e5m2) return 1.0 / 4;
  return dtype == DType::i8 ? 1.0 / 16 : otherwise;
}

}  // namespace

void KernelCase::make_append_kv(int size) {
  const auto traits = spec_.traits_as<AppendTraits>();
  if (traits.sequences) return make_append_sequences(size);
  const int heads_kv = size == 0 ? 5 : 3 - size, heads = traits.query ? 2 * heads_kv - 1 : 0;
  const int lanes = append_lanes(std::max(traits.head_dim, traits.head_dim_v), traits.vector);
  // All slots are taken in turn, so that nothing is left of what a cache held.
  const int tokens = size == 2 ? 1 : kAppendThreads / lanes + 2 + size;
  const int page_size = tokens % 3 == 0 ? 3 : tokens;
  AppendReference problem;
  problem.traits = traits;
  problem.tokens = tokens, problem.eps = 1e-3f;
  Tensor& key = tensor(traits.input, {tokens, heads_kv, traits.head_dim});
  Tensor& value = tensor(traits.input, {tokens, heads_kv, traits.head_dim_v});
  const int pages = tokens / page_size;
  Tensor& k_cache = tensor(traits.cache, {pages, page_size, heads_kv, traits.head_dim});
  Tensor& v_cache = tensor(traits.cache, {pages, page_size, heads_kv, traits.head_dim_v});
  Tensor& slots = tensor(DType::i64, {tokens});
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t slot = tokens - 1 - i;
    std::memcpy(slots.bytes.data() + i * 8, &slot, 8);
    problem.slots.push_back(slot);
  }
  AppendKvOptions options;
  options.eps = problem.eps, options.interleaved = traits.interleaved;
  if (traits.weight != DType::none) {
    const Tensor& weight = tensor(traits.weight, {traits.head_dim});
    options.k_weight = weight.view, problem.weight = weight.values;
    if (traits.query) options.q_weight = weight.view;
  }
  if (traits.rotary != 0) {
    const int angles = traits.rotary / 2;
    const Tensor& cos = tensor(traits.table, {tokens, angles});
    const Tensor& sin = tensor(traits.table, {tokens, angles});
    options.cos = cos.view, problem.cos = cos.values;
    options.sin = sin.view, problem.sin = sin.values;
    options.positions = slots.view;
  }
  if (traits.cache == DType::i8) {  // integers, and all of them small
    Tensor& scale = tensor(DType::f32, {1});
    const float sixty_fourth = 1.0f / 32;
    std::memcpy(scale.bytes.data(), &sixty_fourth, 4);
    options.k_scale = options.v_scale = scale.view;
    problem.scale = sixty_fourth;
  }
  problem.x = key.values, problem.heads = heads_kv;
  const auto add = [&](Tensor& cache, bool computes) {
    const double allowed = epsilon(traits.input);
    outputs_.push_back({&cache, cached(problem, computes), cache_epsilon(traits.cache, allowed)});
  };
  add(k_cache, /*computes=*/true);
  problem.x = value.values;
  add(v_cache, /*computes=*/false);
  if (traits.query) {
    Tensor& query = tensor(traits.input, {tokens, heads, traits.head_dim});
    Tensor& out = tensor(traits.input, {tokens, heads, traits.head_dim});
    options.query = query.view, options.query_out = out.view;
    problem.x = query.values, problem.heads = heads;
    outputs_.push_back({&out, reference(problem), epsilon(traits.input)});
  }
  AppendProblem call;
  check_append_kv(key.view, value.view, k_cache.view, v_cache.view, slots.view, options, call);
  Step& step = call.recipe.first();
  step.spec = spec_;
  const int rows = append_configs()[static_cast<std::size_t>(spec_.row())].rows;
  step.blocks =
      static_cast<unsigned>(append_blocks(call.tokens, call.heads, call.heads_kv, lanes, rows));
  recipe_ = call.recipe;
}

}  // namespace kiln::testing
