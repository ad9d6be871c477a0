// The problems of KernelCase for appending behind the keys of sequences: two of them, each with as
// many new tokens, which fill whole pages behind those that a sequence has already.
#include <algorithm>

#include "jit/append_kv/config.h"
#include "jit/append_kv/sequences.h"
#include "templates/append_kv/params.h"
#include "tests/emulator/kernel_case.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {

void KernelCase::make_append_sequences(int size) {
  constexpr int kSequences = 2, kColumnsBefore = 2;
  const auto traits = spec_.traits_as<AppendTraits>();
  const int heads_kv = size == 0 ? 5 : 3 - size, heads = traits.query ? 2 * heads_kv - 1 : 0;
  const int lanes = append_lanes(std::max(traits.head_dim, traits.head_dim_v), traits.vector);
  const int len = size == 2 ? 1 : kAppendThreads / lanes / kSequences + 2 + size;
  const int tokens = kSequences * len;
  const int page_size = len % 3 == 0 ? 3 : len, pages = len / page_size;
  // Sequence b has b pages full of keys, which are none of the cache's, and its new tokens in the
  // pages behind these, last sequence first.
  const int width = pages + kColumnsBefore;
  std::vector<int> lengths, table(static_cast<std::size_t>(kSequences * width), -1);
  AppendReference problem;
  problem.traits = traits;
  problem.tokens = tokens;
  for (int b = 0; b < kSequences; ++b) {
    lengths.push_back((b + 1) * page_size);
    const int first = (kSequences - 1 - b) * pages;
    for (int i = 0; i < pages; ++i) {
      table[static_cast<std::size_t>(b * width + b + 1 + i)] = first + i;
    }
    for (int i = 0; i < len; ++i) {
      problem.slots.push_back(first * page_size + i);
      problem.positions.push_back(lengths.back() + i);
    }
  }
  Tensor& key = tensor(traits.input, {kSequences, len, heads_kv, traits.head_dim});
  Tensor& value = tensor(traits.input, {kSequences, len, heads_kv, traits.head_dim_v});
  const int all_pages = kSequences * pages;
  Tensor& k_cache = tensor(traits.cache, {all_pages, page_size, heads_kv, traits.head_dim});
  Tensor& v_cache = tensor(traits.cache, {all_pages, page_size, heads_kv, traits.head_dim_v});
  const TensorView none;
  TensorView cos, sin, query, query_out;
  if (traits.rotary != 0) {
    const int positions = kColumnsBefore * page_size + len, angles = traits.rotary / 2;
    const Tensor& cosines = tensor(traits.table, {positions, angles});
    const Tensor& sines = tensor(traits.table, {positions, angles});
    cos = cosines.view, problem.cos = cosines.values;
    sin = sines.view, problem.sin = sines.values;
  }
  problem.x = key.values, problem.heads = heads_kv;
  outputs_.push_back({&k_cache, cached(problem, /*computes=*/true), epsilon(traits.input)});
  AppendReference plain = problem;
  plain.x = value.values;
  outputs_.push_back({&v_cache, cached(plain, /*computes=*/false), epsilon(traits.input)});
  if (traits.query) {
    Tensor& given = tensor(traits.input, {kSequences, len, heads, traits.head_dim});
    Tensor& out = tensor(traits.input, {kSequences, len, heads, traits.head_dim});
    query = given.view, query_out = out.view;
    problem.x = given.values, problem.heads = heads;
    outputs_.push_back({&out, reference(problem), epsilon(traits.input)});
  }
  AppendProblem call;
  call.device_ordinal = ordinal_;
  check_append_sequences({.key = key.view,
                          .value = value.view,
                          .k_cache = k_cache.view,
                          .v_cache = v_cache.view,
                          .cache_seqlens = integers({kSequences}, lengths).view,
                          .block_table = integers({kSequences, width}, table).view,
                          .kv_indptr = none,
                          .kv_indices = none,
                          .cache_batch_idx = none,
                          .cos = cos,
                          .sin = sin,
                          .query = query,
                          .query_out = query_out,
                          .interleaved = traits.interleaved},
                         call);
  Step& step = call.recipe.first();
  step.spec = spec_;
  const int rows = append_configs()[static_cast<std::size_t>(spec_.row())].rows;
  step.blocks =
      static_cast<unsigned>(append_blocks(call.tokens, call.heads, call.heads_kv, lanes, rows));
  recipe_ = call.recipe;
}

}  // namespace kiln::testing
