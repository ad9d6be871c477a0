// The walk through the tables of GEMM rows that a problem may use, without a list in memory.
#pragma once

#include "jit/gemm/config.h"
#include "jit/gemm/family.h"

namespace kiln {

// Whether the row's kernel can compute such a problem, with K of 1 or more for sm_90a rows.
bool serves(const GemmConfig& config, const GemmTraits& traits, int arch);
bool serves(const GemmSm90Config& config, const GemmTraits& traits, int arch);
// Whether products of 8-bit floats go to sums in fp32 after every K-tile.
bool is_promoted(const GemmTraits& traits);
// For K = 0, of which no tensor map can be made; none for 8-bit floats.
GemmRow first_portable_row(const GemmTraits& traits, int arch);

// Visits the rows of one table that serve.
template <class Config, class Visit>
void for_each_of(const Template& kernel, std::span<const Config> configs, const GemmTraits& traits,
                 int arch, Visit&& visit) {
  for (int row = 0; row < static_cast<int>(configs.size()); ++row) {
    if (serves(configs[static_cast<std::size_t>(row)], traits, arch)) visit(GemmRow{&kernel, row});
  }
}

// The rows among which a call chooses: those of sm_90a if there are any, else the portable ones.
template <class Visit>
void for_each_row(const GemmTraits& traits, int arch, Visit&& visit) {
  if (why_not_sm90(traits, arch).empty()) {
    for_each_of(kGemmSm90, gemm_sm90_configs(), traits, arch, visit);
  } else {
    for_each_of(kGemmPortable, gemm_configs(), traits, arch, visit);
  }
}

}  // namespace kiln
