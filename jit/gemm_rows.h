// The walk through the table of GEMM rows that a problem may use, without a list in memory.
#pragma once

#include "jit/config.h"

namespace kiln {

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch);

template <class Visit>
void for_each_row(const GemmTraits& traits, int arch, Visit visit) {
  const std::span<const GemmConfig> configs = gemm_configs();
  for (int row = 0; row < static_cast<int>(configs.size()); ++row) {
    if (serves(configs[static_cast<std::size_t>(row)], traits, arch)) visit(row);
  }
}

}  // namespace kiln
