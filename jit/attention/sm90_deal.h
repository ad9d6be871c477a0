// The deal of a causal call's query tiles to the CTAs of the persistent kernel.
#pragma once

#include <cstdint>

namespace kiln {

// A tile of a head costs more than the one before it by 1, the first one `first_cost`.
struct Deal {
  std::int64_t heads = 0, tiles = 0, first_cost = 0, ctas = 0;
  bool may_be_even = false;  // or all tiles cost the same, or the first ones: nobody knows
  bool operator==(const Deal&) const = default;
};

// The most that a CTA computes, of tiles that differ, if all but the last `rest` heads are dealt in
// pairs: see templates/attention/sm90/schedule.cuh.
std::int64_t longest_share(const Deal& deal, std::int64_t rest);

// AttentionParams::heads_paired: as many as leave the CTAs with nearly equal shares.
int heads_paired(const Deal& deal);

}  // namespace kiln
