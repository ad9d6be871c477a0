// The closed table of GEMM tiles.
#include "jit/gemm_rows.h"

#include <algorithm>

#include "jit/arch.h"
#include "jit/argument_errors.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// Measured on an H200 over M = 1 to 8192, with and without splits, against twelve other tiles; a
// row stays if it is the fastest somewhere. The rates and the constants of the cost below are
// fitted to 74 problems: there the choice takes 0.4 % longer than the best of all rows and splits
// (geometric mean; at worst 14 %).
constexpr GemmConfig kConfigs[] = {
    {2, 256, 128, 64, 4, 4, 2, 447, 447,
     "large problems: 64x64 warp tiles; 192 KB, one CTA; 128x256 is as fast"},
    {2, 256, 128, 32, 4, 4, 2, 430, 430, "the same in 96 KB, for archs with 99 KB"},
    {2, 128, 128, 64, 3, 2, 2, 400, 417, "where 256x128 leaves multiprocessors idle; two CTAs"},
    {2, 64, 128, 64, 4, 2, 2, 311, 338, "where 128x128 does; 128x64 is no faster"},
    {2, 64, 64, 64, 6, 2, 2, 262, 285, "M up to 64, or few tiles and a long K"},
    {2, 32, 64, 128, 4, 1, 4, 192, 211, "M up to 32: long rows of K need few barriers"},
    {2, 16, 32, 128, 6, 1, 2, 83, 99, "M up to 16: a stream of weights, 60 KB of it under way"},
    {2, 16, 64, 64, 6, 1, 4, 88, 89, "the same where 32 columns are more tiles than fit at once"},
    {4, 256, 128, 32, 4, 4, 2, 215, 215, "large problems: 64x64 warp tiles; 192 KB, one CTA"},
    {4, 128, 128, 32, 3, 2, 2, 192, 192, "where 256x128 leaves multiprocessors idle; two CTAs"},
    {4, 64, 128, 32, 4, 2, 2, 159, 164, "where 128x128 does"},
    {4, 64, 64, 32, 6, 2, 2, 145, 152, "M up to 64, or few tiles and a long K"},
    {4, 32, 64, 64, 4, 1, 4, 84, 110, "M up to 32"},
    {4, 16, 32, 64, 6, 1, 2, 26, 77, "M up to 16: a stream of weights"},

    // sm_90a; measured on an H200 over M = 1 to 4096 and the layers of four models. Which of them a
    // problem gets is computed from their tiles, see gemm_sm90_cost.cpp.
    // 16 bits.
    {2,
     128,
     256,
     64,
     4,
     0,
     0,
     0,
     0,
     "large problems: the fewest bytes of shared memory for each product",
     {.groups = 2, .raster_rows = 16}},
    {2,
     128,
     224,
     64,
     4,
     0,
     0,
     0,
     0,
     "where its tiles fill whole waves, as of N = 28672: 1.06 to 1.09 of cuBLAS there",
     {.groups = 2}},
    {2,
     128,
     192,
     64,
     4,
     0,
     0,
     0,
     0,
     "likewise, N = 6144; and 8192^3, where power limits: 1.04",
     {.groups = 2}},
    {2, 128, 176, 64, 5, 0, 0, 0, 0, "likewise, N = 2112", {.groups = 2}},
    {2, 128, 160, 64, 5, 0, 0, 0, 0, "likewise, N = 10240", {.groups = 2}},
    {2, 128, 144, 64, 5, 0, 0, 0, 0, "likewise, N = 4608", {.groups = 2}},
    {2,
     128,
     128,
     64,
     6,
     0,
     0,
     0,
     0,
     "short K and outputs that cost: one group multiplies while the other writes",
     {.groups = 2, .ping_pong = true}},
    {2, 128, 112, 64, 6, 0, 0, 0, 0, "whole waves of N = 3584", {.groups = 2}},
    {2, 128, 96, 64, 6, 0, 0, 0, 0, "whole waves of N = 6144 at M = 256", {.groups = 2}},
    {2, 128, 128, 64, 7, 0, 0, 0, 0, "few tiles and a long K", {.groups = 2, .splits = true}},
    {2, 128, 64, 64, 9, 0, 0, 0, 0, "the same with fewer columns", {.groups = 2, .splits = true}},
    {2,
     128,
     64,
     64,
     8,
     0,
     0,
     0,
     0,
     "M up to 256: 64 columns of the output are the rows of wgmma, which reads less",
     {.groups = 1, .swapped = true}},
    {2,
     64,
     128,
     64,
     8,
     0,
     0,
     0,
     0,
     "M up to 64, many weights: four CTAs share the tokens",
     {.groups = 2, .cluster = 4, .swapped = true}},
    {2,
     64,
     64,
     64,
     12,
     0,
     0,
     0,
     0,
     "M up to 64: a stream of weights, 190 KB of it under way",
     {.groups = 1, .swapped = true}},
    {2, 32, 64, 64, 14, 0, 0, 0, 0, "M up to 32, the same", {.groups = 1, .swapped = true}},
    {2, 16, 64, 64, 16, 0, 0, 0, 0, "M up to 16, the same", {.groups = 1, .swapped = true}},
    {2,
     128,
     64,
     64,
     8,
     0,
     0,
     0,
     0,
     "M up to 256, few columns and a long K",
     {.groups = 1, .splits = true, .swapped = true}},
    {2,
     64,
     128,
     64,
     9,
     0,
     0,
     0,
     0,
     "M up to 64, the same",
     {.groups = 2, .splits = true, .swapped = true}},
    {2,
     32,
     64,
     64,
     9,
     0,
     0,
     0,
     0,
     "M up to 32, the same; two CTAs fit",
     {.groups = 1, .splits = true, .swapped = true, .residents = 2}},
    {2,
     16,
     64,
     64,
     10,
     0,
     0,
     0,
     0,
     "M up to 16, the same",
     {.groups = 1, .splits = true, .swapped = true, .residents = 2}},
    // 8 bits.
    {1,
     128,
     256,
     128,
     4,
     0,
     0,
     0,
     0,
     "large problems: the fewest bytes of shared memory for each product",
     {.groups = 2, .raster_rows = 16}},
    {1,
     128,
     192,
     128,
     4,
     0,
     0,
     0,
     0,
     "likewise, N = 6144; and 8192^3, where power limits: 1.04",
     {.groups = 2}},
    {1, 128, 160, 128, 5, 0, 0, 0, 0, "likewise, N = 10240", {.groups = 2}},
    {1,
     128,
     128,
     128,
     6,
     0,
     0,
     0,
     0,
     "few tiles; the sums of two groups are promoted side by side",
     {.groups = 2}},
    {1,
     128,
     128,
     128,
     5,
     0,
     0,
     0,
     0,
     "short K and outputs that cost, without promotion",
     {.groups = 2, .ping_pong = true}},
    {1, 128, 96, 128, 6, 0, 0, 0, 0, "whole waves of N = 6144 at M = 256", {.groups = 2}},
    {1, 128, 128, 128, 7, 0, 0, 0, 0, "few tiles and a long K", {.groups = 2, .splits = true}},
    {1,
     128,
     64,
     128,
     8,
     0,
     0,
     0,
     0,
     "M up to 256: 64 columns of the output are the rows of wgmma, which reads less",
     {.groups = 1, .swapped = true}},
    {1,
     64,
     64,
     128,
     12,
     0,
     0,
     0,
     0,
     "M up to 64: a stream of weights, 190 KB of it under way",
     {.groups = 1, .swapped = true}},
    {1, 32, 64, 128, 14, 0, 0, 0, 0, "M up to 32, the same", {.groups = 1, .swapped = true}},
    {1, 16, 64, 128, 16, 0, 0, 0, 0, "M up to 16, the same", {.groups = 1, .swapped = true}},
    {1,
     128,
     64,
     128,
     8,
     0,
     0,
     0,
     0,
     "M up to 256, few columns and a long K",
     {.groups = 1, .splits = true, .swapped = true}},
    {1,
     64,
     128,
     128,
     9,
     0,
     0,
     0,
     0,
     "M up to 64, the same",
     {.groups = 2, .splits = true, .swapped = true}},
    {1,
     32,
     64,
     128,
     9,
     0,
     0,
     0,
     0,
     "M up to 32, the same; two CTAs fit",
     {.groups = 1, .splits = true, .swapped = true, .residents = 2}},
    {1,
     16,
     64,
     128,
     10,
     0,
     0,
     0,
     0,
     "M up to 16, the same",
     {.groups = 1, .splits = true, .swapped = true, .residents = 2}},
    // tf32.
    {4,
     128,
     256,
     32,
     4,
     0,
     0,
     0,
     0,
     "large problems: the fewest bytes of shared memory for each product",
     {.groups = 2, .raster_rows = 16}},
    {4,
     128,
     192,
     32,
     4,
     0,
     0,
     0,
     0,
     "likewise, N = 6144; and 8192^3, where power limits: 1.04",
     {.groups = 2}},
    {4,
     128,
     128,
     32,
     6,
     0,
     0,
     0,
     0,
     "short K and outputs that cost: one group multiplies while the other writes",
     {.groups = 2, .ping_pong = true}},
    {4, 128, 96, 32, 6, 0, 0, 0, 0, "whole waves of N = 6144 at M = 256", {.groups = 2}},
    {4, 128, 128, 32, 7, 0, 0, 0, 0, "few tiles and a long K", {.groups = 2, .splits = true}},
    {4,
     128,
     64,
     32,
     8,
     0,
     0,
     0,
     0,
     "M up to 256: 64 columns of the output are the rows of wgmma, which reads less",
     {.groups = 1, .swapped = true}},
    {4,
     64,
     64,
     32,
     12,
     0,
     0,
     0,
     0,
     "M up to 64: a stream of weights, 190 KB of it under way",
     {.groups = 1, .swapped = true}},
    {4, 32, 64, 32, 14, 0, 0, 0, 0, "M up to 32, the same", {.groups = 1, .swapped = true}},
    {4, 16, 64, 32, 16, 0, 0, 0, 0, "M up to 16, the same", {.groups = 1, .swapped = true}},
    {4,
     128,
     64,
     32,
     8,
     0,
     0,
     0,
     0,
     "M up to 256, few columns and a long K",
     {.groups = 1, .splits = true, .swapped = true}},
    {4,
     64,
     128,
     32,
     9,
     0,
     0,
     0,
     0,
     "M up to 64, the same",
     {.groups = 2, .splits = true, .swapped = true}},
    {4,
     32,
     64,
     32,
     9,
     0,
     0,
     0,
     0,
     "M up to 32, the same; two CTAs fit",
     {.groups = 1, .splits = true, .swapped = true, .residents = 2}},
    {4,
     16,
     64,
     32,
     10,
     0,
     0,
     0,
     0,
     "M up to 16, the same",
     {.groups = 1, .splits = true, .swapped = true, .residents = 2}},
};

// An operand whose K lies along its columns is loaded in blocks of 64 of them, of which a CTA's
// share of the tile must consist.
bool has_whole_blocks(const GemmConfig& config, const GemmTraits& traits) {
  const Sm90Form& form = config.sm90;
  const int share_m = config.block_m / (form.swapped ? form.cluster : 1);
  const int share_n = config.block_n / (form.swapped ? 1 : form.cluster);
  return (traits.major_a == Major::k || share_m % 64 == 0) &&
         (traits.major_b == Major::k || share_n % 64 == 0);
}

// Products of 8-bit floats that go to sums in fp32 after every K-tile: 128 columns at a time, by
// two groups at once. With turns, one would add while the tensor cores wait for it: 0.6 of the
// speed.
bool is_promoted(const GemmTraits& traits) { return is_f8(traits.input) && !traits.fast; }
bool can_promote(const GemmConfig& config) {
  const int columns = config.sm90.swapped ? config.block_m : config.block_n;
  return !config.sm90.ping_pong && (columns <= 128 || columns % 128 == 0);
}

// Gates and their partners are a half of the tile's columns each: of whole pairs of accumulators,
// or of whole blocks. Where the columns are rows of the product, eight gates and their partners
// take turns, and no group of eight may cross the end of the gates: whole vectors of 16 bits say
// so.
bool can_gate(const GemmConfig& config, const GemmTraits& traits) {
  if (traits.gate == Gate::none || !config.is_sm90()) return true;
  const bool by_k = traits.major_b == Major::k;
  if (config.sm90.swapped) {
    return by_k && traits.stores == Access::vectors && size_of(traits.output) == 2;
  }
  return config.sm90.cluster == 1 && config.block_n % (by_k ? 32 : 128) == 0;
}

int arch_number(int arch) { return arch_table()[static_cast<std::size_t>(arch)].number; }

}  // namespace

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config) <= arch_table()[static_cast<std::size_t>(arch)].shared_bytes &&
         (!config.is_sm90() ||
          (why_not_sm90(traits, arch, 1).empty() && has_whole_blocks(config, traits) &&
           can_gate(config, traits) && (!is_promoted(traits) || can_promote(config))));
}

std::span<const GemmConfig> gemm_configs() { return kConfigs; }

int shared_bytes(const GemmConfig& config) {
  if (config.is_sm90()) {
    const Sm90Form& form = config.sm90;
    const int bias_count = form.swapped ? config.block_n / form.groups : config.block_n;
    return gemm_sm90_shared_bytes(config.block_m, config.block_n, config.stages, form.groups,
                                  bias_count, form.splits);
  }
  return gemm_shared_bytes(config.block_m, config.block_n, config.block_k, config.stages,
                           config.element_bytes);
}

std::string tile_name(const GemmConfig& config) {
  std::string name = std::to_string(config.block_m) + "x" + std::to_string(config.block_n) + "x" +
                     std::to_string(config.block_k) + "x" + std::to_string(config.stages);
  if (config.sm90.splits) name += " split";
  if (config.sm90.cluster > 1) name += " cluster " + std::to_string(config.sm90.cluster);
  if (config.sm90.ping_pong) name += " ping-pong";
  if (config.sm90.swapped) name += " swapped";
  return name;
}

int first_portable_row(const GemmTraits& traits, int arch) {
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    if (!kConfigs[row].is_sm90() && serves(kConfigs[row], traits, arch)) return row;
  }
  return -1;
}

std::vector<int> gemm_rows(const GemmTraits& traits, int arch) {
  std::vector<int> rows;
  for_each_row(traits, arch, [&](int row) { rows.push_back(row); });
  const int portable = first_portable_row(traits, arch);
  if (portable >= 0 && std::find(rows.begin(), rows.end(), portable) == rows.end()) {
    rows.insert(rows.begin(), portable);  // for K = 0
  }
  return rows;
}

std::vector<int> all_gemm_rows(const GemmTraits& traits, int arch) {
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
        (tile.cluster == 0 || config.sm90.cluster == tile.cluster) &&
        (tile.splits == 0 || (config.sm90.splits && tile.splits <= kMostCluster)) &&
        serves(config, traits, arch)) {
      return row;
    }
  }
  return -1;
}

std::string why_not_sm90(const GemmTraits& traits, int arch, std::int64_t k) {
  if (arch_number(arch) != 90) return "wgmma is an instruction of compute capability 9.0 alone";
  if (traits.accumulator != Accumulator::f32) return "wgmma kernels accumulate in float32";
  if (traits.input == DType::f32 && (traits.major_a != Major::k || traits.major_b != Major::k)) {
    return "wgmma takes tf32 operands with contiguous K only (layout nt)";
  }
  if (is_f8(traits.input) && (traits.major_a != Major::k || traits.major_b != Major::k)) {
    return "wgmma takes 8-bit floats only where a and b are contiguous along K (layout nt)";
  }
  if (traits.gate == Gate::interleaved && traits.major_b != Major::k) {
    return "no tensor map tells columns apart that alternate in memory: b must be contiguous along "
           "K where gate is interleaved";
  }
  if (traits.loads == Access::elements) {
    return "a or b admits no tensor map: its base and its strides must be multiples of 16 bytes";
  }
  if (k == 0) return "K is 0: there is nothing to multiply";
  return "";
}

bool is_sm90_gemm(const Specialization& spec) {
  return spec.family() == Family::gemm &&
         gemm_configs()[static_cast<std::size_t>(spec.row())].is_sm90();
}

bool has_residual_boxes(const GemmTraits& traits, const GemmConfig& config) {
  const Sm90Form& form = config.sm90;
  return traits.residual != DType::none && traits.stores == Access::vectors &&
         size_of(traits.residual) == size_of(traits.output) && !form.swapped && !form.splits;
}

Specialization gemm_specialization(int arch, int row, const GemmTraits& traits) {
  const GemmConfig& config = gemm_configs()[static_cast<std::size_t>(row)];
  GemmTraits baked = traits;
  if (config.is_sm90()) {
    baked.loads = Access::boxes;  // or better
  } else {
    if (baked.loads == Access::boxes) baked.loads = Access::elements;
    if (baked.stores == Access::boxes) baked.stores = Access::elements;
  }
  return Specialization(arch, row, baked);
}

}  // namespace kiln
