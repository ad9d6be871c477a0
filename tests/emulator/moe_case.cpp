// The problems of KernelCase for mixtures of experts: tokens that fill CTAs but for the last, more
// pairs than a pass has or hardly any, experts without rows, and pairs without an expert.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "jit/moe_permute/family.h"
#include "jit/moe_permute/problem.h"
#include "jit/moe_route/config.h"
#include "jit/moe_route/problem.h"
#include "jit/op/arch.h"
#include "templates/moe_permute/params.h"
#include "templates/moe_route/params.h"
#include "tests/emulator/kernel_case.h"

namespace kiln::testing {

void KernelCase::make_moe_route(int size) {
  const auto traits = spec_.traits_as<RouteTraits>();
  const int most = route_configs()[static_cast<std::size_t>(spec_.row())].experts;
  const int tokens = 5 + size, experts = size == 1 ? 12 : most - 16 * size, top_k = 3 + size;
  Tensor& logits = tensor(traits.input, {tokens, experts});
  Tensor& weights = tensor(DType::f32, {tokens, top_k});
  Tensor& chosen = tensor(DType::i32, {tokens, top_k});
  MoeRouteOptions options;
  options.scoring = traits.scoring, options.scale = 1.5f;
  options.groups = size == 2 ? 4 : 1, options.top_groups = size == 2 ? 2 : 1;
  std::vector<float> bias(static_cast<std::size_t>(experts), 0.0f);
  if (traits.bias != DType::none) {
    const Tensor& made = tensor(traits.bias, {experts});
    options.bias = made.view, bias = made.values;
  }
  RouteProblem call;
  check_moe_route(logits.view, weights.view, chosen.view, options, call);
  Step& step = call.recipe.first();
  step.spec = spec_;
  step.blocks = static_cast<unsigned>(route_blocks(tokens));
  recipe_ = call.recipe;
  const bool has_bias = traits.bias != DType::none;
  std::vector<double> all_weights, all_chosen;
  for (int token = 0; token < tokens; ++token) {
    const float* const row = logits.values.data() + token * experts;
    std::vector<double> scores(row, row + experts), choices;
    double sum = 0;
    for (double& score : scores) {
      score = traits.scoring == MoeScoring::sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score);
      sum += score;
    }
    for (int i = 0; i < experts; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (traits.scoring == MoeScoring::softmax) scores[at] /= sum;
      // In f32, in which choices may be equal, like the logits.
      choices.push_back(static_cast<float>(static_cast<float>(scores[at]) + bias[at]));
      if (!has_bias) choices.back() = row[i];
    }
    std::vector<int> order(static_cast<std::size_t>(experts)), groups;
    std::iota(order.begin(), order.end(), 0);
    const auto better = [&](int a, int b) {
      return choices[static_cast<std::size_t>(a)] > choices[static_cast<std::size_t>(b)];
    };
    std::stable_sort(order.begin(), order.end(), better);
    if (options.groups > 1) {
      std::vector<std::pair<double, int>> best;
      for (int g = 0; g < options.groups; ++g) {
        double score = 0;
        int found = 0;
        for (int expert : order) {
          if (expert / (experts / options.groups) != g || found == (has_bias ? 2 : 1)) continue;
          score = static_cast<float>(score + choices[static_cast<std::size_t>(expert)]), ++found;
        }
        best.emplace_back(-score, g);
      }
      std::sort(best.begin(), best.end());
      for (int i = 0; i < options.top_groups; ++i)
        groups.push_back(best[static_cast<std::size_t>(i)].second);
      std::erase_if(order, [&](int expert) {
        return std::find(groups.begin(), groups.end(), expert / (experts / options.groups)) ==
               groups.end();
      });
    }
    double of_chosen = 0;
    for (int k = 0; k < top_k; ++k) of_chosen += scores[static_cast<std::size_t>(order[k])];
    for (int k = 0; k < top_k; ++k) {
      all_chosen.push_back(order[static_cast<std::size_t>(k)]);
      all_weights.push_back(options.scale * scores[static_cast<std::size_t>(order[k])] / of_chosen);
    }
  }
  outputs_.push_back({&weights, all_weights, 1e-5});
  outputs_.push_back({&chosen, all_chosen, 1e-6});
}

void KernelCase::make_moe_permute(int size) {
  const auto traits = spec_.traits_as<PermuteTraits>();
  const bool counts = &spec_.kernel() == &permute_template(PermuteLaunch::count) || size == 2;
  const int top_k = size == 1 ? 1 : 6, tokens = size == 1 ? 3 : 200, experts = size == 1 ? 2 : 40;
  const int columns = traits.access == 1 ? 5 : traits.access == 4 ? 7 : 72;
  const DType dtype = traits.access == 1 ? DType::i8 : traits.access == 4 ? DType::f32 : DType::f16;
  std::mt19937 random(7);
  std::vector<int> numbers(static_cast<std::size_t>(tokens * top_k));
  for (int& number : numbers) number = static_cast<int>(random() % 50) - 5;
  Tensor& x = tensor(dtype, {tokens, columns});
  Tensor& chosen = integers({tokens, top_k}, numbers);
  Tensor& out = tensor(dtype, {tokens * top_k, columns});
  Tensor& offsets = tensor(DType::i32, {experts});
  Tensor& inverse = tensor(DType::i32, {tokens, top_k});
  if (traits.index == DType::i64) {
    chosen.bytes.resize(numbers.size() * 8);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t number = numbers[i];
      std::memcpy(chosen.bytes.data() + i * 8, &number, 8);
    }
    chosen.view.dtype = DType::i64, chosen.view.data = chosen.bytes.data();
  }
  PermuteProblem call;
  check_moe_permute(x.view, chosen.view, out.view, offsets.view, inverse.view, call);
  Step& step = call.recipe.first();
  const int each = size == 1 ? 2 : 90, blocks = (tokens + each - 1) / each;
  step.spec = spec_, step.blocks = static_cast<unsigned>(blocks);
  step.arguments.set_int(offsetof(PermuteParams, tokens_each), each);
  if (counts) {
    const auto bytes = static_cast<std::size_t>(blocks * experts) * sizeof(int);
    call.recipe.workspace_bytes = bytes;
    step.arguments.want_workspace(offsetof(PermuteParams, counts), 0, bytes);
    Step& second = call.recipe.add();
    second = step;
    second.programmatic = arch_table()[static_cast<std::size_t>(spec_.arch())].number >= 90;
    const auto of = [&](PermuteLaunch launch) {
      const Template& kernel = permute_template(launch);
      return &kernel == &spec_.kernel() ? spec_ : Specialization(kernel, spec_.arch(), 0, traits);
    };
    step.spec = of(PermuteLaunch::count), second.spec = of(PermuteLaunch::sort);
  }
  recipe_ = call.recipe;
  std::vector<double> rows, ends, places(numbers.size(), -1);
  for (int expert = 0; expert < experts; ++expert) {
    for (std::size_t pair = 0; pair < numbers.size(); ++pair) {
      if (numbers[pair] != expert) continue;
      places[pair] = static_cast<double>(rows.size() / static_cast<std::size_t>(columns));
      const auto token = pair / static_cast<std::size_t>(top_k);
      const float* const from = x.values.data() + token * static_cast<std::size_t>(columns);
      rows.insert(rows.end(), from, from + columns);
    }
    ends.push_back(static_cast<double>(rows.size() / static_cast<std::size_t>(columns)));
  }
  outputs_.push_back({&out, rows, 1e-9});
  outputs_.push_back({&offsets, ends, 1e-9});
  outputs_.push_back({&inverse, places, 1e-9});
}

void KernelCase::make_moe_unpermute(int size) {
  const auto traits = spec_.traits_as<UnpermuteTraits>();
  const int tokens = 9, top_k = size == 0 ? 6 : size == 1 ? 1 : 4, rows = 20;
  const int columns = traits.vector * (size == 1 ? 5 : 37);
  std::mt19937 random(3);
  std::vector<int> numbers(static_cast<std::size_t>(tokens * top_k));
  for (int& number : numbers) number = static_cast<int>(random() % (rows + 4)) - 2;
  Tensor& y = tensor(traits.input, {rows, columns});
  Tensor& inverse = integers({tokens, top_k}, numbers);
  Tensor& weights = tensor(DType::f32, {tokens, top_k});
  Tensor& out = tensor(traits.output, {tokens, columns});
  UnpermuteProblem call;
  check_moe_unpermute(y.view, inverse.view, traits.weights ? weights.view : TensorView{}, out.view,
                      call);
  Step& step = call.recipe.first();
  step.spec = spec_;
  step.blocks = static_cast<unsigned>(unpermute_blocks(tokens, columns, traits.vector));
  recipe_ = call.recipe;
  std::vector<double> sums(static_cast<std::size_t>(tokens * columns), 0);
  for (std::size_t pair = 0; pair < numbers.size(); ++pair) {
    const int row = numbers[pair];
    if (row < 0 || row >= rows) continue;
    const double weight = traits.weights ? weights.values[pair] : 1;
    const std::size_t to =
        pair / static_cast<std::size_t>(top_k) * static_cast<std::size_t>(columns);
    for (int c = 0; c < columns; ++c) {
      sums[to + static_cast<std::size_t>(c)] +=
          weight * y.values[static_cast<std::size_t>(row * columns + c)];
    }
  }
  outputs_.push_back({&out, sums, epsilon(traits.output)});
}

}  // namespace kiln::testing
