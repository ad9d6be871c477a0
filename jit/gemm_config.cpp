#include <algorithm>
#include <cmath>

#include "jit/arch.h"
#include "jit/config.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// Measured on an H200 over M = 1 to 8192 with and without splits, against twelve other tiles; a row
// stays if it is the fastest somewhere. With the rates and the constants of cost() below, the tile
// chosen for 39 such problems takes 0.8 % longer than the best one (geometric mean; at worst 13 %).
constexpr GemmConfig kConfigs[] = {
    {2, 256, 128, 64, 4, 4, 2, 466, 466,
     "large problems: 64x64 warp tiles; 192 KB, one CTA; 128x256 is as fast"},
    {2, 256, 128, 32, 4, 4, 2, 445, 445, "the same in 96 KB, for archs with 99 KB"},
    {2, 128, 128, 64, 3, 2, 2, 417, 417, "where 256x128 leaves multiprocessors idle; two CTAs"},
    {2, 64, 128, 64, 4, 2, 2, 324, 358, "where 128x128 does; 128x64 is no faster"},
    {2, 64, 64, 64, 6, 2, 2, 262, 285, "M up to 64, or few tiles and a long K"},
    {2, 32, 64, 128, 4, 1, 4, 178, 192, "M up to 32: long rows of K need few barriers"},
    {2, 16, 32, 128, 6, 1, 2, 83, 99, "M up to 16: a stream of weights, 60 KB of it under way"},
    {2, 16, 64, 64, 6, 1, 4, 88, 89, "the same where 32 columns are more tiles than fit at once"},
    {4, 256, 128, 32, 4, 4, 2, 207, 207, "large problems: 64x64 warp tiles; 192 KB, one CTA"},
    {4, 128, 128, 32, 3, 2, 2, 192, 192, "where 256x128 leaves multiprocessors idle; two CTAs"},
    {4, 64, 128, 32, 4, 2, 2, 156, 175, "where 128x128 does"},
    {4, 64, 64, 32, 6, 2, 2, 134, 152, "M up to 64, or few tiles and a long K"},
    {4, 32, 64, 64, 4, 1, 4, 84, 110, "M up to 32"},
    {4, 16, 32, 64, 6, 1, 2, 26, 77, "M up to 16: a stream of weights"},
};

// What cost() knows of the device beside the rates, in microseconds of an H200. On other GPUs all
// are slower together: the bytes that memory brings for each product hardly differ.
constexpr float kTileTime = 4;         // before the first product of a tile and after the last
constexpr float kBytesPerSm = 30300;   // from memory, a microsecond: 4.0 TB/s among 132
constexpr float kSplitTime = 2;        // until the CTA that sums a tile knows that it does
constexpr float kSummedBytes = 80000;  // that it then reads, a microsecond
constexpr float kSplitDoubt = 0.02f;   // a doubled split must promise more than this
constexpr float kLaunchTime = 2;
constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16};
constexpr std::int64_t kMostWorkspace = 64 << 20;

// A row on a device.
struct Candidate {
  const GemmConfig* config;
  int sm_count;
  int resident;  // CTAs that fit on a multiprocessor
  std::int64_t tiles;
  int k_tiles;
};

Candidate candidate(const GemmConfig& config, int arch, const GemmExtent& extent, int sm_count) {
  const int on_sm = arch_table()[static_cast<std::size_t>(arch)].shared_bytes_per_sm;
  return {&config, sm_count, std::max(1, on_sm / (shared_bytes(config) + 1024)),
          gemm_tiles(static_cast<int>(extent.m), static_cast<int>(extent.n),
                     static_cast<int>(extent.batch), config.block_m, config.block_n),
          static_cast<int>((extent.k + config.block_k - 1) / config.block_k)};
}

// A split must fit on the device at once: a second wave of parts is slower than whole tiles. Its
// parts have two K-tiles or more.
bool may_split_by(const Candidate& row, int splits) {
  const GemmConfig& config = *row.config;
  return splits == 1 ||
         (row.tiles * splits <= static_cast<std::int64_t>(row.resident) * row.sm_count &&
          2 * splits <= row.k_tiles &&
          gemm_workspace_bytes(row.tiles, splits, config.block_m, config.block_n) <=
              kMostWorkspace);
}

// Estimated microseconds of a launch: waves of CTAs, each multiprocessor working on its own at its
// full rate, but no faster than one CTA alone can; no less than memory takes; and with splits, the
// sum of the parts.
float cost(const Candidate& row, int splits, float memory_time) {
  const GemmConfig& config = *row.config;
  const float area = static_cast<float>(config.block_m * config.block_n);
  const float k = static_cast<float>((row.k_tiles + splits - 1) / splits * config.block_k) / 4096;
  const auto ctas = static_cast<unsigned long long>(row.tiles) * static_cast<unsigned>(splits);
  const auto sm_count = static_cast<unsigned>(row.sm_count);
  const auto resident = static_cast<unsigned>(row.resident);
  const unsigned long long on_sm = (ctas + sm_count - 1) / sm_count;  // of the busiest
  const float full = area * k / static_cast<float>(config.rate_full);
  const auto waves = static_cast<float>(on_sm / resident);
  float time = waves * (static_cast<float>(resident) * full + kTileTime);
  if (const auto rest = static_cast<float>(on_sm % resident); rest > 0) {
    time += std::max(area * k / static_cast<float>(config.rate_alone), rest * full) + kTileTime;
  }
  time = std::max(time, memory_time) + kLaunchTime;
  if (splits == 1) return time;
  const auto parts = static_cast<float>(splits);
  const float sum = kSplitTime + parts * area * 4 / kSummedBytes;
  return (time + sum) * (1 + kSplitDoubt * std::log2(parts));
}

float memory_time_of(const GemmTraits& traits, const GemmExtent& extent, int sm_count) {
  const auto m = static_cast<float>(extent.m), n = static_cast<float>(extent.n);
  const auto k = static_cast<float>(extent.k), batch = static_cast<float>(extent.batch);
  return batch * (m * k + n * k + m * n) * static_cast<float>(size_of(traits.input)) /
         (kBytesPerSm * static_cast<float>(sm_count));
}

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config) <= arch_table()[static_cast<std::size_t>(arch)].shared_bytes;
}

}  // namespace

std::span<const GemmConfig> gemm_configs() { return kConfigs; }

int shared_bytes(const GemmConfig& config) {
  return gemm_shared_bytes(config.block_m, config.block_n, config.block_k, config.stages,
                           config.element_bytes);
}

std::string tile_name(const GemmConfig& config) {
  return std::to_string(config.block_m) + "x" + std::to_string(config.block_n) + "x" +
         std::to_string(config.block_k) + "x" + std::to_string(config.stages);
}

std::vector<int> gemm_rows(const GemmTraits& traits, int arch) {
  std::vector<int> rows;
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    if (serves(kConfigs[row], traits, arch)) rows.push_back(row);
  }
  return rows;
}

int find_gemm_row(const GemmTraits& traits, int arch, const GemmTile& tile) {
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    const GemmConfig& config = kConfigs[row];
    if (config.block_m == tile.block_m && config.block_n == tile.block_n &&
        config.block_k == tile.block_k && config.stages == tile.stages &&
        serves(config, traits, arch)) {
      return row;
    }
  }
  return -1;
}

Choice choose_gemm(const GemmTraits& traits, int arch, const GemmExtent& extent, int sm_count,
                   bool may_split, int only_row) {
  const float memory_time = memory_time_of(traits, extent, sm_count);
  Choice best;
  float best_cost = -1;
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    if (!serves(kConfigs[row], traits, arch) || (only_row >= 0 && row != only_row)) continue;
    const Candidate here = candidate(kConfigs[row], arch, extent, sm_count);
    for (int splits : kSplits) {
      if (!may_split_by(here, splits) || (splits > 1 && !may_split)) break;
      const float here_cost = cost(here, splits, memory_time);
      if (best_cost < 0 || here_cost < best_cost) {
        best = {row, splits};
        best_cost = here_cost;
      }
    }
  }
  return best;
}

}  // namespace kiln
