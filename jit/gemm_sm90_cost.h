// What an sm_90a row would take for a problem: the arithmetic behind its choice.
#pragma once

#include "jit/config.h"

namespace kiln {

// Of both operands and the output, each once.
float compulsory_bytes(const GemmTraits& traits, const GemmExtent& extent);

// Clusters of so many CTAs that the device runs at the same time.
int clusters_at_once(int cluster, int residents, int sm_count);

// Microseconds on an H200, of other devices in proportion; only their order matters. `splits`: CTAs
// that share K of a tile, 1 for rows without splits.
float sm90_cost(const GemmConfig& config, const GemmTraits& traits, const GemmExtent& extent,
                int sm_count, int splits);

}  // namespace kiln
