#include "jit/gemm/portable_cost.h"

#include <algorithm>
#include <cmath>

#include "jit/gemm/sm90_cost.h"
#include "jit/op/arch.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// What the cost knows of the device beside the rates, in microseconds of an H200. On other GPUs
// all are slower together: the bytes that memory brings for each product hardly differ.
constexpr float kTileTime = 4.5f;      // of a CTA before the first product and after the last
constexpr float kBytesPerSm = 30300;   // from memory, a microsecond: 4.0 TB/s among 132
constexpr float kExposed = 0.2f;       // of the shorter of memory and products
constexpr float kSumTime = 2;          // until a CTA knows that it is the one that sums a tile
constexpr float kHiddenSumTime = 1;    // where whole tiles run beside it
constexpr float kSummedBytes = 80000;  // that it then reads, a microsecond
constexpr float kDoubt = 0.02f;        // a doubled split must promise more than this
constexpr float kLaunchTime = 2;
constexpr std::int64_t kMostWorkspace = 64 << 20;

}  // namespace

float memory_time_of(const GemmTraits& traits, const GemmExtent& extent, int sm_count) {
  return compulsory_bytes(traits, extent) / (kBytesPerSm * static_cast<float>(sm_count));
}

PortableCost::PortableCost(const GemmConfig& config, int arch, const GemmExtent& extent,
                           int sm_count, float memory_time)
    : config_(&config),
      sm_count_(sm_count),
      resident_(std::max(1, arch_table()[static_cast<std::size_t>(arch)].shared_bytes_per_sm /
                                (shared_bytes(config) + 1024))),
      tiles_(gemm_tiles(static_cast<int>(extent.m), static_cast<int>(extent.n),
                        static_cast<int>(extent.batch), config.block_m, config.block_n)),
      k_tiles_(static_cast<int>((extent.k + config.block_k - 1) / config.block_k)),
      memory_time_(memory_time) {}

float PortableCost::outputs(int k) const {
  return area() * static_cast<float>(k) * static_cast<float>(config_->block_k) / 4096;
}

// One CTA's products of `k` K-tiles, alone on its multiprocessor.
float PortableCost::alone_time(int k) const {
  return outputs(k) / static_cast<float>(config_->rate_alone);
}

// What CTAs with `k` K-tiles in all take when the multiprocessor is full.
float PortableCost::full_time(int k) const {
  return outputs(k) / static_cast<float>(config_->rate_full);
}

float PortableCost::busy_time(int ctas, int k) const {
  return std::max(alone_time(k), full_time(ctas * k));
}

float PortableCost::with_memory(float time) const {
  return std::max(time, memory_time_) + kExposed * std::min(time, memory_time_) + kLaunchTime;
}

float PortableCost::with_sum(float time, int splits, float sum_time) const {
  const auto parts = static_cast<float>(splits);
  return (time + sum_time + parts * area() * 4 / kSummedBytes) * (1 + kDoubt * std::log2(parts));
}

float PortableCost::cost(int splits) const {
  const auto ctas = static_cast<unsigned long long>(tiles_) * static_cast<unsigned>(splits);
  const auto on_sm = static_cast<unsigned>((ctas + static_cast<unsigned>(sm_count_) - 1) /
                                           static_cast<unsigned>(sm_count_));  // on the busiest
  const auto fit = static_cast<unsigned>(resident_);
  const int k = part(splits);
  float time = static_cast<float>(on_sm / fit) * (busy_time(resident_, k) + kTileTime);
  if (on_sm % fit != 0) time += busy_time(static_cast<int>(on_sm % fit), k) + kTileTime;
  time = with_memory(time);
  return splits == 1 ? time : with_sum(time, splits, kSumTime);
}

float PortableCost::tail_cost(std::int64_t whole, int on_sm, int splits) const {
  const std::int64_t parts = (tiles_ - whole) * splits;
  const int more = static_cast<int>((parts + sm_count_ - 1) / sm_count_) * part(splits);
  const auto waves = static_cast<float>(whole / (static_cast<std::int64_t>(on_sm) * sm_count_));
  const float wave = busy_time(on_sm, k_tiles_) + kTileTime;
  if (on_sm == resident_) {
    const float tail = std::max(alone_time(part(splits)), full_time(more));
    return with_sum(with_memory(waves * wave + tail), splits, kSumTime);
  }
  const float last = std::max(alone_time(k_tiles_), full_time(on_sm * k_tiles_ + more));
  return with_sum(with_memory((waves - 1) * wave + last + kTileTime), splits, kHiddenSumTime);
}

int PortableCost::whole_on_sm(std::int64_t whole) const {
  int on_sm = resident_;
  while (whole % (static_cast<std::int64_t>(on_sm) * sm_count_) != 0) --on_sm;
  return on_sm;
}

bool PortableCost::can_split(std::int64_t split_tiles, int splits, int on_sm) const {
  const std::int64_t parts = split_tiles * splits;
  return parts <= static_cast<std::int64_t>(on_sm) * sm_count_ && 2 * splits <= k_tiles_ &&
         gemm_workspace_bytes(parts, config_->block_m, config_->block_n) <= kMostWorkspace;
}

}  // namespace kiln
