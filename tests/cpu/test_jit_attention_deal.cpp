// The deal of query tiles to the CTAs of the sm_90a attention kernel: even shares, and few heads
// that are not dealt in pairs.
#include <cstdint>

#include "jit/attention/sm90_deal.h"

namespace {

using kiln::Deal;
using kiln::heads_paired;
using kiln::longest_share;

double total_cost(const Deal& deal) {
  const auto tiles = static_cast<double>(deal.tiles);
  const double head = tiles * static_cast<double>(deal.first_cost) + tiles * (tiles - 1) / 2;
  return head * static_cast<double>(deal.heads);
}

TEST_CASE("A share counts pairs, then sorted tiles back and forth") {
  // Two heads of three tiles, which cost 2, 3 and 4: three pairs of 6 for two CTAs.
  const Deal deal{.heads = 4, .tiles = 3, .first_cost = 2, .ctas = 2};
  CHECK(longest_share({.heads = 2, .tiles = 3, .first_cost = 2, .ctas = 2}, 0) == 12);
  // All heads sorted: 4 4 4 4 3 3 3 3 2 2 2 2, six to each CTA.
  CHECK(longest_share(deal, 4) == 18);
  // Pairs of two heads, 6 6 and 6; then 4 to the other CTA, 4 | 4 3 | 3 3 | 2 2.
  CHECK(longest_share(deal, 2) == 6 + 6 + 3 + 3);
}

TEST_CASE("Shares of causal calls are even, whatever their lengths") {
  for (const std::int64_t heads : {12, 16, 33, 64, 128, 300}) {
    for (std::int64_t tiles = 4; tiles < 100; tiles += 3) {
      const Deal deal{.heads = heads, .tiles = tiles, .first_cost = 2, .ctas = 132};
      if (heads * tiles < 8 * deal.ctas) continue;
      const int paired = heads_paired(deal);
      CAPTURE(heads, tiles, paired);
      REQUIRE(paired >= 0);
      REQUIRE(paired % 2 == 0);
      REQUIRE(paired <= heads);
      const double mean = total_cost(deal) / static_cast<double>(deal.ctas);
      CHECK(static_cast<double>(longest_share(deal, heads - paired)) < 1.06 * mean);
      CHECK(heads_paired(deal) == paired);  // remembered
    }
  }
}

TEST_CASE("Tiles that may be even are dealt so that both are shared well") {
  // Five pairs and a rest of six heads are best for causal masks, and a tile too many for windows.
  Deal deal{.heads = 16, .tiles = 86, .first_cost = 2, .ctas = 132};
  CHECK(heads_paired(deal) == 10);
  deal.may_be_even = true;
  CHECK(heads_paired(deal) == 14);
  CHECK(static_cast<double>(longest_share(deal, 2)) <
        1.03 * total_cost(deal) / static_cast<double>(deal.ctas));
}

TEST_CASE("Tiles that may begin with a prefix leave a rest that evens them out") {
  // Pairs of 22 tiles, of which 132 CTAs have the same ones in each round: 1.12 times the mean for
  // a prefix of a quarter, where no rest follows.
  Deal deal{.heads = 128, .tiles = 22, .first_cost = 2, .ctas = 132, .may_be_even = true};
  CHECK(heads_paired(deal) <= 106);
  deal.heads = 64;
  CHECK(heads_paired(deal) == 46);
}

TEST_CASE("Heads of one tile each are dealt one by one") {
  CHECK(heads_paired({.heads = 200, .tiles = 1, .first_cost = 2, .ctas = 132}) == -1);
}

}  // namespace
