#include <algorithm>

#include "jit/arch.h"
#include "jit/config.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// Rates measured on an H200 over M = 1 to 8192 at N = K = 4096, against all other tiles that fit.
constexpr GemmConfig kConfigs[] = {
    {2, 256, 128, 64, 3, 4, 2, 390, 390, "large problems: 64x64 warp tiles; 144 KB, one CTA"},
    {2, 256, 128, 32, 3, 4, 2, 366, 366, "the same in 72 KB, for archs with 99 KB"},
    {2, 128, 128, 64, 3, 2, 4, 315, 324, "where 256x128 leaves multiprocessors idle; 96 KB"},
    {2, 128, 64, 64, 3, 2, 2, 179, 327, "where 128x128 does, M not small"},
    {2, 64, 128, 64, 3, 2, 2, 180, 327, "M up to 64 with a wide N"},
    {2, 64, 64, 64, 3, 2, 2, 102, 241, "small problems: four CTAs a multiprocessor hide latency"},
    {2, 32, 64, 64, 4, 1, 4, 71, 185, "M up to 128, N not wide: no idle rows in the warp tiles"},
    {2, 16, 64, 64, 6, 1, 4, 46, 119, "M up to 64: a stream of weights, deep stages hide latency"},
    {2, 16, 32, 128, 6, 1, 2, 27, 90, "M up to 32: twice the CTAs on the stream of weights"},
    {4, 128, 256, 16, 3, 2, 4, 171, 171, "large problems: 64x64 warp tiles"},
    {4, 128, 128, 32, 3, 2, 4, 133, 147, "where 128x256 leaves multiprocessors idle; 96 KB"},
    {4, 64, 64, 32, 3, 2, 2, 50, 96, "small problems"},
    {4, 16, 64, 32, 6, 1, 4, 22, 56, "M up to 64"},
};

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config) <= arch_table()[arch].shared_bytes;
}

// Time of a launch for one K: whole waves of tiles, each multiprocessor working on its CTAs at its
// full rate; but no less than one tile takes when it is alone there, where latency shows.
double cost(const GemmConfig& config, std::int64_t m, std::int64_t n, std::int64_t batch,
            int sm_count) {
  const std::int64_t tiles = gemm_grid(static_cast<int>(m), static_cast<int>(n),
                                       static_cast<int>(batch), config.block_m, config.block_n);
  const double waves = static_cast<double>((tiles + sm_count - 1) / sm_count);
  const double area = config.block_m * config.block_n;
  return std::max(area / config.rate_alone, waves * area / config.rate_full);
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

int pick_gemm_row(const GemmTraits& traits, int arch, std::int64_t m, std::int64_t n,
                  std::int64_t batch, int sm_count) {
  int best = -1;
  double best_cost = 0;
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    if (!serves(kConfigs[row], traits, arch)) continue;
    const double row_cost = cost(kConfigs[row], m, n, batch, sm_count);
    if (best < 0 || row_cost < best_cost) {
      best = row;
      best_cost = row_cost;
    }
  }
  return best;
}

}  // namespace kiln
