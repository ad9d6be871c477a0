// The model knows a row by its tile alone; its constants are fitted to 140 problems (layers of
// Llama-3.1-8B and 70B, Qwen2.5-7B and DeepSeek-V3 at M = 1 to 4096, bf16, NT; an H200) in 2166
// measurements. There the choice takes 0.5 % longer than the best of all rows and splits that were
// tried (mean; at worst 9 %).
#include "jit/gemm_sm90_cost.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr float kClocks = 1755;  // a microsecond

// A multiprocessor's clocks for 128 bytes of K of a tile of `rows` x `columns` of wgmma: the slower
// of products and loads, and what a step takes in any case.
constexpr float kTensorClocks = 1.45f;  // a multiple of what the tensor cores need at best
constexpr float kLoneGroup = 1.2f;      // likewise, where no second warpgroup fills the gaps
constexpr float kLoadBytes = 69;        // of operands, a clock
constexpr float kStepClocks = 80;

// In microseconds.
constexpr float kLaunchTime = 1;         // the same for all; the rest is in the others
constexpr float kTileTime = 0.2f;        // of a tile that is written while nothing is multiplied
constexpr float kOutputTime = 1.4e-4f;   // likewise for each of its outputs
constexpr float kLastTile = 0.9f;        // times that, for the end of the last, which all wait for
constexpr float kStartTime = 4;          // until a CTA multiplies that is not persistent
constexpr float kSharedSumTime = 3.15f;  // sums go through shared memory
constexpr float kRemoteTime = 1.58e-4f;  // likewise from CTA to CTA, for each output of each
constexpr float kUprightRemote = 3;      // times that, where the tile is not swapped
constexpr float kBytesPerSm = 33000;     // from memory: 4.35 TB/s among 132
constexpr float kExposed = 0.46f;        // of the shorter of memory and products

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Clusters of 1, 2, .. 8 CTAs that an H200 holds at once, with one CTA on a multiprocessor and with
// two: its processors come in groups that no cluster crosses (cuOccupancyMaxActiveClusters).
constexpr int kClusters[2][kMostCluster] = {{132, 66, 39, 30, 22, 17, 15, 15},
                                            {264, 132, 79, 62, 47, 39, 32, 30}};

float step_clocks(int rows, int columns, const Sm90Form& form) {
  const auto r = static_cast<float>(rows), c = static_cast<float>(columns);
  const float tensor = r * c / 32 * kTensorClocks * (form.groups == 1 ? kLoneGroup : 1.0f);
  const float load = (r + c / static_cast<float>(form.cluster)) * 128 / kLoadBytes;
  return std::max(tensor, load) + kStepClocks;
}

}  // namespace

int clusters_at_once(int cluster, int residents, int sm_count) {
  return std::max(1, kClusters[residents - 1][cluster - 1] * sm_count / 132);
}

float compulsory_bytes(const GemmTraits& traits, const GemmExtent& extent) {
  const auto m = static_cast<float>(extent.m), n = static_cast<float>(extent.n);
  const auto k = static_cast<float>(extent.k), batch = static_cast<float>(extent.batch);
  const auto in = static_cast<float>(size_of(traits.input));
  const auto out = static_cast<float>(size_of(traits.output));
  return batch * ((m + n) * k * in + m * n * out);
}

float sm90_cost(const GemmConfig& config, const GemmTraits& traits, const GemmExtent& extent,
                int sm_count, int splits) {
  const Sm90Form& form = config.sm90;
  const int rows = form.swapped ? config.block_n : config.block_m;
  const int columns = form.swapped ? config.block_m : config.block_n;
  const std::int64_t all_rows = form.swapped ? extent.n : extent.m;
  const std::int64_t all_columns = form.swapped ? extent.m : extent.n;
  const std::int64_t ctas = quotient_up(all_rows, static_cast<std::int64_t>(rows) * form.cluster) *
                            form.cluster * quotient_up(all_columns, columns) * extent.batch *
                            splits;
  const std::int64_t k_tiles = quotient_up(extent.k * size_of(traits.input), 128);
  const std::int64_t part = quotient_up(k_tiles, splits);

  // Waves of CTAs: of each, the slower of its products and of its share of the bytes, since a
  // persistent CTA loads on while it writes.
  const int cluster = form.splits ? splits : form.cluster;
  const std::int64_t slots =
      std::int64_t{cluster} * clusters_at_once(cluster, form.residents, sm_count);
  const float step = step_clocks(rows, columns, form) / kClocks;
  const float memory =
      compulsory_bytes(traits, extent) / (kBytesPerSm * static_cast<float>(sm_count));
  const auto outputs = static_cast<float>(rows * columns);
  const float tile_time = kTileTime + kOutputTime * outputs;
  const auto wave_time = [&](std::int64_t active) {
    if (active == 0) return 0.0f;
    const std::int64_t on_sm = quotient_up(active * form.residents, slots);
    const float products = static_cast<float>(on_sm * part) * step +
                           (form.ping_pong ? 0 : tile_time) +
                           (form.splits ? kStartTime / static_cast<float>(form.residents) : 0);
    const float bytes = memory * static_cast<float>(active) / static_cast<float>(ctas);
    return std::max(products, bytes) + kExposed * std::min(products, bytes);
  };
  float time = kLaunchTime + static_cast<float>(ctas / slots) * wave_time(slots) +
               wave_time(ctas % slots) + kLastTile * tile_time;
  if (form.splits) {
    time += kSharedSumTime + kRemoteTime * (form.swapped ? 1.0f : kUprightRemote) * outputs *
                                 static_cast<float>(splits - 1);
  }
  return time;
}

}  // namespace kiln
