#include "jit/attention/sm90_deal.h"

#include <algorithm>
#include <array>
#include <vector>

namespace kiln {

namespace {

// The most that a CTA computes where a tile of a head costs `slope` more than the one before it.
std::int64_t longest_share(const Deal& deal, std::int64_t rest, std::int64_t slope) {
  const std::int64_t pairs = (deal.heads - rest) / 2 * deal.tiles;
  const std::int64_t pair_cost = 2 * deal.first_cost + slope * (deal.tiles - 1);
  std::vector<std::int64_t> costs(static_cast<std::size_t>(deal.ctas),
                                  pairs / deal.ctas * pair_cost);
  std::int64_t place = 0, direction = 1;
  const auto give = [&](std::int64_t cost) {
    costs[static_cast<std::size_t>(place)] += cost;
    const bool turns = direction > 0 ? place + 1 == deal.ctas : place == 0;
    turns ? direction = -direction : place += direction;
  };
  for (std::int64_t pair = 0; pair < pairs % deal.ctas; ++pair) give(pair_cost);
  for (std::int64_t tile = deal.tiles - 1; tile >= 0; --tile) {
    for (std::int64_t head = 0; head < rest; ++head) give(deal.first_cost + slope * tile);
  }
  return *std::max_element(costs.begin(), costs.end());
}

// The same over what the CTAs compute on average; of tiles that may be even, the worse of the two.
double unevenness(const Deal& deal, std::int64_t rest) {
  const auto over_mean = [&](std::int64_t slope) {
    const double head = static_cast<double>(deal.tiles) * static_cast<double>(deal.first_cost) +
                        static_cast<double>(slope * deal.tiles * (deal.tiles - 1)) / 2;
    return static_cast<double>(longest_share(deal, rest, slope) * deal.ctas) /
           (head * static_cast<double>(deal.heads));
  };
  return deal.may_be_even ? std::max(over_mean(0), over_mean(1)) : over_mean(1);
}

int best_paired(const Deal& deal) {
  if (deal.tiles == 1) return -1;
  // More heads than fill four rounds gain nothing, and would be too many for L2.
  const std::int64_t most = std::min(deal.heads, 4 * deal.ctas / deal.tiles + 2);
  std::int64_t best = deal.heads % 2;
  double least = unevenness(deal, best);
  for (std::int64_t rest = best + 2; rest <= most; rest += 2) {
    const double one = unevenness(deal, rest);
    if (one * 200 < least * 199) best = rest, least = one;
  }
  return static_cast<int>(deal.heads - best);
}

}  // namespace

std::int64_t longest_share(const Deal& deal, std::int64_t rest) {
  return longest_share(deal, rest, 1);
}

int heads_paired(const Deal& deal) {
  // The search takes some 10 us. Calls of a model have few shapes, so it is not repeated.
  struct Answer {
    Deal deal;
    int paired = 0;
  };
  thread_local std::array<Answer, 8> answers;
  const std::int64_t mixed =
      deal.heads * 31 + deal.tiles * 7 + deal.first_cost + (deal.may_be_even ? 1 : 0);
  Answer& answer = answers[static_cast<std::size_t>(mixed) % answers.size()];
  if (answer.deal != deal) answer = {deal, best_paired(deal)};
  return answer.paired;
}

}  // namespace kiln
