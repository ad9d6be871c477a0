#include "jit/arch.h"
#include "jit/config.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

constexpr GemmConfig kConfigs[] = {
    {2, 128, 128, 32, 4, 2, 2, 100, "64x64 warp tiles: 64 products for each 16 KB read; 64 KB"},
    {2, 128, 64, 32, 4, 2, 2, 80, "medium N, or too few 128x128 tiles for the machine"},
    {2, 64, 128, 32, 4, 2, 2, 80, "medium M, likewise"},
    {2, 64, 64, 64, 3, 2, 2, 60, "small problems: four times the tiles"},
    {2, 32, 64, 64, 4, 1, 4, 36, "M up to 32: no idle rows in the warp tiles"},
    {2, 16, 64, 64, 6, 1, 4, 24, "M up to 16: a stream of weights, deep stages hide its latency"},
    {4, 128, 128, 16, 4, 2, 2, 100, "as the 16-bit row; the same bytes a stage"},
    {4, 64, 64, 32, 3, 2, 2, 60, "small problems"},
    {4, 16, 64, 32, 6, 1, 4, 24, "M up to 16"},
};

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config) <= arch_table()[arch].shared_bytes;
}

// Time of a launch in units of one full-rate 1x1 tile: whole waves of tiles, where one
// multiprocessor holds as many CTAs as shared memory allows but works on them at one rate.
double cost(const GemmConfig& config, std::int64_t m, std::int64_t n, std::int64_t batch,
            int sm_count) {
  const std::int64_t tiles = gemm_grid(static_cast<int>(m), static_cast<int>(n),
                                       static_cast<int>(batch), config.block_m, config.block_n);
  const std::int64_t waves = (tiles + sm_count - 1) / sm_count;
  return static_cast<double>(waves) * config.block_m * config.block_n / config.rate;
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
