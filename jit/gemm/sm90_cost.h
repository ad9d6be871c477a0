// What an sm_90a row would take for a problem: the arithmetic behind its choice.
#pragma once

#include "jit/gemm/config.h"

namespace kiln {

// Of both operands and the output, each once.
float compulsory_bytes(const GemmTraits& traits, const GemmExtent& extent);

// The CTAs of a launch whose K is not divided.
std::int64_t sm90_ctas(const GemmSm90Config& config, const GemmExtent& extent);

// Of the order of microseconds on an H200 (a third too long, without a launch's own time, which is
// the same for all), of other devices in proportion; only which is less matters. `splits`: CTAs
// that share K of a tile, 1 for rows without splits.
float sm90_cost(const GemmSm90Config& config, const GemmTraits& traits, const GemmExtent& extent,
                int sm_count, int splits);

}  // namespace kiln
