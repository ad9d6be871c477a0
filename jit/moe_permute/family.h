// Sorting rows by experts and adding them up again, as rows of families().
#pragma once

#include <vector>

#include "jit/op/family.h"

namespace kiln {

extern const Family kMoePermute, kMoeUnpermute;

enum class PermuteLaunch : std::uint8_t { count, sort };
const Template& permute_template(PermuteLaunch launch);
const Template& unpermute_template();

// The CTAs of a call of so many tokens: so many that each multiprocessor has two, or that a row for
// each CTA is all there is.
struct PermuteGrid {
  int tokens_each, blocks;
};
PermuteGrid permute_grid(std::int64_t tokens, int sm_count);

}  // namespace kiln
