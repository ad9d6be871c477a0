// The model knows a row by its tile alone; its constants are fitted to 135 problems (layers of
// Llama-3.1-8B and 70B, Qwen2.5-7B and DeepSeek-V3 at M = 1 to 4096, bf16, NT; an H200). There the
// choice takes 0.9 % longer than the best of all rows and splits that were tried (mean; at worst
// 18 %).
#include "jit/gemm_sm90_cost.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr float kClocks = 1755;  // a microsecond

// A multiprocessor's clocks for 128 bytes of K of a tile of `rows` x `columns` of wgmma: the
// slowest of three units, and what a step takes in any case.
constexpr float kTensorClocks = 1.18f;  // a multiple of what the tensor cores need at best
constexpr float kSharedClocks = 0.96f;  // likewise of shared memory's, 128 bytes a clock
constexpr float kLoadBytes = 87;        // of operands, a clock
constexpr float kStepClocks = 5.6f;

// In microseconds.
constexpr float kLaunchTime = 4;         // until the first product, after the last byte
constexpr float kTileTime = 0.85f;       // of a tile that is written while nothing is multiplied
constexpr float kOutputTime = 2.4e-5f;   // likewise for each of its outputs
constexpr float kSharedSumTime = 0.7f;   // sums go through shared memory
constexpr float kClusterSumTime = 0.6f;  // and from CTA to CTA
constexpr float kRemoteTime = 4.1e-4f;   // likewise for each output
constexpr float kBytesPerSm = 29500;     // from memory: 3.9 TB/s among 132
constexpr float kExposed = 0.13f;        // of the shorter of memory and products

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Clusters of 1, 2, .. 8 CTAs that an H200 holds at once, with one CTA on a multiprocessor and with
// two: its processors come in groups that no cluster crosses (cuOccupancyMaxActiveClusters).
constexpr int kClusters[2][kMostCluster] = {{132, 66, 39, 30, 22, 17, 15, 15},
                                            {264, 132, 79, 62, 47, 39, 32, 30}};

std::int64_t ctas_at_once(int cluster, int residents, int sm_count) {
  const int clusters = kClusters[residents - 1][cluster - 1] * sm_count / 132;
  return static_cast<std::int64_t>(std::max(clusters, 1)) * cluster;
}

float step_clocks(int rows, int columns, int cluster) {
  const auto r = static_cast<float>(rows), c = static_cast<float>(columns);
  const float tensor = r * c / 32;
  // Written once; each 64 rows are read with all columns.
  const float shared = r + c + r / 64 * (64 + c);
  const float load = (r + c / static_cast<float>(cluster)) * 128 / kLoadBytes;
  return std::max({tensor * kTensorClocks, shared * kSharedClocks, load}) + kStepClocks;
}

}  // namespace

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

  // Of the busiest multiprocessor.
  const std::int64_t slots =
      ctas_at_once(form.splits ? splits : form.cluster, form.residents, sm_count);
  const std::int64_t on_sm = quotient_up(ctas * form.residents, slots);
  const float step = step_clocks(rows, columns, form.cluster) / kClocks;
  const auto outputs = static_cast<float>(rows * columns);
  const float tile_time = kTileTime + kOutputTime * outputs;
  const float written =
      form.ping_pong ? 1.0f : static_cast<float>(quotient_up(on_sm, form.residents));
  const float products = static_cast<float>(on_sm * part) * step + written * tile_time;

  const float memory =
      compulsory_bytes(traits, extent) / (kBytesPerSm * static_cast<float>(sm_count));
  float time = kLaunchTime + std::max(products, memory) + kExposed * std::min(products, memory);
  if (form.splits) time += kSharedSumTime;
  if (splits > 1) time += kClusterSumTime + kRemoteTime * outputs;
  return time;
}

}  // namespace kiln
