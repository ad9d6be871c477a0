// The walk through the table of GEMM rows that a problem may use, without a list in memory.
#pragma once

#include "jit/config.h"

namespace kiln {

// Whether the row's kernel can compute such a problem, with K of 1 or more for sm_90a rows.
bool serves(const GemmConfig& config, const GemmTraits& traits, int arch);
// For K = 0, of which no tensor map can be made; -1 for 8-bit floats, which have none.
int first_portable_row(const GemmTraits& traits, int arch);

// The rows among which a call chooses: those of sm_90a if there are any, else the portable ones.
template <class Visit>
void for_each_row(const GemmTraits& traits, int arch, Visit visit) {
  const std::span<const GemmConfig> configs = gemm_configs();
  const bool sm90 = why_not_sm90(traits, arch, 1).empty();
  for (int row = 0; row < static_cast<int>(configs.size()); ++row) {
    const GemmConfig& config = configs[static_cast<std::size_t>(row)];
    if (config.is_sm90() == sm90 && serves(config, traits, arch)) visit(row);
  }
}

}  // namespace kiln
