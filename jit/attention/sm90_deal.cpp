#include "jit/attention/sm90_deal.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace kiln {

namespace {

// How the tiles of a head grow: of a causal mask, by `slope` from one to the next; of a prefix,
// those whose growth is below `least` cost that.
struct Growth {
  std::int64_t slope = 1, least = 0;
};
std::int64_t cost_of(const Deal& deal, const Growth& growth, std::int64_t tile) {
  return deal.first_cost + std::max(growth.slope * tile, growth.least);
}

std::int64_t pair_cost_of(const Deal& deal, const Growth& growth, std::int64_t pair) {
  const std::int64_t tile = pair % deal.tiles;
  return cost_of(deal, growth, tile) + cost_of(deal, growth, deal.tiles - 1 - tile);
}

// What full rounds of pairs give each CTA. Its pairs repeat after `period` rounds, or all cost the
// same.
std::vector<std::int64_t> costs_of_rounds(const Deal& deal, const Growth& growth,
                                          std::int64_t rounds) {
  const bool are_alike = growth.least == 0;
  const std::int64_t period = are_alike ? 1 : deal.tiles / std::gcd(deal.tiles, deal.ctas);
  std::vector<std::int64_t> costs(static_cast<std::size_t>(deal.ctas),
                                  are_alike ? rounds * pair_cost_of(deal, growth, 0) : 0);
  for (std::int64_t round = 0; !are_alike && round < std::min(rounds, period); ++round) {
    const std::int64_t times = (rounds - round + period - 1) / period;
    for (std::int64_t cta = 0; cta < deal.ctas; ++cta) {
      costs[static_cast<std::size_t>(cta)] +=
          times * pair_cost_of(deal, growth, round * deal.ctas + cta);
    }
  }
  return costs;
}

// The most that a CTA computes.
std::int64_t longest_share(const Deal& deal, std::int64_t rest, const Growth& growth) {
  const std::int64_t pairs = (deal.heads - rest) / 2 * deal.tiles;
  std::vector<std::int64_t> costs = costs_of_rounds(deal, growth, pairs / deal.ctas);
  std::int64_t place = 0, direction = 1;
  const auto give = [&](std::int64_t cost) {
    costs[static_cast<std::size_t>(place)] += cost;
    const bool turns = direction > 0 ? place + 1 == deal.ctas : place == 0;
    turns ? direction = -direction : place += direction;
  };
  for (std::int64_t pair = pairs / deal.ctas * deal.ctas; pair < pairs; ++pair) {
    give(pair_cost_of(deal, growth, pair));
  }
  for (std::int64_t tile = deal.tiles - 1; tile >= 0; --tile) {
    const std::int64_t cost = cost_of(deal, growth, tile);
    for (std::int64_t head = 0; head < rest; ++head) give(cost);
  }
  return *std::max_element(costs.begin(), costs.end());
}

// The same over what the CTAs compute on average; of what tiles may be, the worst.
double unevenness(const Deal& deal, std::int64_t rest) {
  const auto over_mean = [&](const Growth& growth) {
    std::int64_t head = 0;
    for (std::int64_t tile = 0; tile < deal.tiles; ++tile) head += cost_of(deal, growth, tile);
    return static_cast<double>(longest_share(deal, rest, growth) * deal.ctas) /
           static_cast<double>(head * deal.heads);
  };
  const double triangle = over_mean({});
  if (!deal.may_be_even) return triangle;
  return std::max({triangle, over_mean({.slope = 0}), over_mean({.least = deal.tiles / 4})});
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
  return longest_share(deal, rest, Growth{});
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
