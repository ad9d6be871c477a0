// What a row of the portable kernel would take for a problem: the arithmetic behind its choice.
#pragma once

#include <cstdint>

#include "jit/gemm/config.h"

namespace kiln {

// Microseconds that a problem's compulsory bytes take.
float memory_time_of(const GemmTraits& traits, const GemmExtent& extent, int sm_count);

// A row for a problem on a device; costs are in microseconds.
class PortableCost {
 public:
  PortableCost(const GemmConfig& config, int arch, const GemmExtent& extent, int sm_count,
               float memory_time);

  std::int64_t tiles() const { return tiles_; }
  int resident() const { return resident_; }  // CTAs that fit on a multiprocessor
  int sm_count() const { return sm_count_; }

  // Each tile by `splits` CTAs.
  float cost(int splits) const;
  // The first `whole` tiles, so many on each multiprocessor at a time, by a CTA each; the others,
  // which are fewer, by `splits` CTAs each. These run beside the last whole tiles if more fit.
  float tail_cost(std::int64_t whole, int on_sm, int splits) const;
  // So many CTAs on each multiprocessor compute the first `whole` tiles at a time.
  int whole_on_sm(std::int64_t whole) const;
  // Parts have two K-tiles or more and must fit on the device at once: a second wave of parts is
  // slower than whole tiles.
  bool can_split(std::int64_t split_tiles, int splits, int on_sm) const;

 private:
  float area() const { return static_cast<float>(config_->block_m * config_->block_n); }
  int part(int splits) const { return (k_tiles_ + splits - 1) / splits; }  // K-tiles of the longest
  float outputs(int k) const;
  float alone_time(int k) const;
  float full_time(int k) const;
  float busy_time(int ctas, int k) const;
  float with_memory(float time) const;
  float with_sum(float time, int splits, float sum_time) const;

  const GemmConfig* config_;
  int sm_count_;
  int resident_;
  std::int64_t tiles_;
  int k_tiles_;
  float memory_time_;
};

}  // namespace kiln
