// The closed tables of the norms' kernels.
#include "jit/norm/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the accesses of 16 bytes that a row of x may have: the first that is wide enough
// serves. H200, as a part of a copy of the same bytes: RMS norm, layer norm, RMS norm with a residual.
constexpr NormConfig kNormConfigs[] = {
    {.threads = 8, .vectors = 2, .rows_per_block = 16, .early_weights = true,
     .reason = "256 bytes, heads: 0.97, 0.95"},
    {.threads = 16, .vectors = 2, .rows_per_block = 8, .early_weights = true,
     .reason = "512 bytes, heads"},
    {.threads = 32, .vectors = 2, .rows_per_block = 4, .early_weights = true,
     .reason = "1 KB: a warp for a row"},
    {.threads = 64, .vectors = 2, .rows_per_block = 2, .early_weights = true,
     .reason = "2 KB: 0.99, 0.92, 0.97"},
    {.threads = 96, .vectors = 2, .early_weights = true, .reason = "3 KB: 0.96, 0.91, 0.96; the next row 0.92, 0.81, 0.96"},
    {.threads = 128, .vectors = 2, .early_weights = true, .reason = "4 KB: 0.98, 0.94"},
    {.threads = 128, .vectors = 3, .reason = "6 KB: between its neighbours"},
    {.threads = 128, .vectors = 4, .stages = 2, .residents = 4, .early_weights = true,
     .reason = "8 KB: 0.95, 0.95, 0.94; 8 CTAs that read weights late 0.97, 0.91, 0.95"},
    {.threads = 160, .vectors = 4, .reason = "10 KB: 0.96, residual 0.96"},
    {.threads = 192, .vectors = 4, .stages = 2, .residents = 4, .reason = "12 KB: 0.94, 0.89, 0.96; without stages 0.92, 0.90, 0.94"},
    {.threads = 256, .vectors = 4, .stages = 2, .residents = 4, .reason = "16 KB: 0.96, 0.92"},
    {.threads = 320, .vectors = 4, .stages = 2, .residents = 3, .reason = "20 KB: 0.93, 0.88, 0.96; without stages 0.94, 0.76, 0.94"},
    {.threads = 384, .vectors = 4, .stages = 2, .residents = 2, .reason = "24 KB: 0.91, 0.86, 0.96; the next row 0.92, 0.89, 0.92"},
    {.threads = 1024, .vectors = 2, .stages = 2, .early_weights = true,
     .reason = "32 KB: 0.94, 0.93; 512 threads of 4 with three stages 0.96, 0.88"},
    {.threads = 1024, .vectors = 4, .stages = 1, .reason = "64 KB: 0.92, 0.91"},
    {.threads = 512, .vectors = 4, .cluster = 4, .stages = 2, .residents = 2,
     .reason = "128 KB: 0.82, 0.76, 0.92; no single CTA holds such a row and hides its latency"},
    {.threads = 512, .vectors = 4, .cluster = 8, .stages = 2, .residents = 2,
     .reason = "256 KB, fp32: 0.88, 0.81"},
};

constexpr NormSplitConfig kSplitConfigs[][1] = {
    {{.threads = 256, .vectors = 2, .launch = 1,
      .reason = "few rows of 64 KB and more, statistics: 2.4 us for one of 128 KB"}},
    {{.threads = 256, .vectors = 2, .launch = 2,
      .reason = "few rows of 64 KB and more, results; one launch takes 3.5 to 6 us"}},
};
// clang-format on

}  // namespace

std::span<const NormConfig> norm_configs() { return kNormConfigs; }
std::span<const NormSplitConfig> norm_split_configs(int launch) {
  return kSplitConfigs[launch - 1];
}

}  // namespace kiln
