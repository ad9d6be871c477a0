// The closed table of GEMM tiles.
#include "jit/gemm_rows.h"

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
    {2, 128, 256, 64, 4, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 16, 1}},
    {2, 128, 256, 64, 4, 0, 0, 800, 800, "exploration", {2, 2, false, false, false, 8, 1}},
    {2, 128, 224, 64, 4, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {2, 128, 192, 64, 4, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {2, 128, 176, 64, 5, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {2, 128, 160, 64, 5, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {2, 128, 128, 64, 6, 0, 0, 800, 800, "exploration", {2, 1, true, false, false, 8, 1}},
    {2, 128, 96, 64, 6, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {2, 128, 64, 64, 7, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {2, 64, 256, 64, 4, 0, 0, 800, 800, "exploration", {2, 1, true, false, false, 8, 1}},
    {2, 64, 192, 64, 5, 0, 0, 800, 800, "exploration", {2, 1, true, false, false, 8, 1}},
    {2, 128, 256, 64, 4, 0, 0, 800, 800, "exploration", {2, 1, false, true, false, 8, 1}},
    {2, 128, 192, 64, 5, 0, 0, 800, 800, "exploration", {2, 1, false, true, false, 8, 1}},
    {2, 128, 128, 64, 7, 0, 0, 800, 800, "exploration", {2, 1, false, true, false, 8, 1}},
    {2, 128, 96, 64, 8, 0, 0, 800, 800, "exploration", {2, 1, false, true, false, 8, 1}},
    {2, 128, 64, 64, 9, 0, 0, 800, 800, "exploration", {2, 1, false, true, false, 8, 1}},
    {2, 128, 64, 64, 8, 0, 0, 800, 800, "exploration", {1, 4, false, false, true, 8, 1}},
    {2, 64, 128, 64, 8, 0, 0, 800, 800, "exploration", {2, 4, false, false, true, 8, 1}},
    {2, 64, 128, 64, 8, 0, 0, 800, 800, "exploration", {2, 2, false, false, true, 8, 1}},
    {2, 64, 64, 64, 12, 0, 0, 800, 800, "exploration", {1, 4, false, false, true, 8, 1}},
    {2, 64, 64, 64, 12, 0, 0, 800, 800, "exploration", {1, 1, false, false, true, 8, 1}},
    {2, 32, 64, 64, 14, 0, 0, 800, 800, "exploration", {1, 1, false, false, true, 8, 1}},
    {2, 16, 64, 64, 16, 0, 0, 800, 800, "exploration", {1, 1, false, false, true, 8, 1}},
    {2, 64, 128, 64, 9, 0, 0, 800, 800, "exploration", {2, 1, false, true, true, 8, 1}},
    {2, 64, 64, 64, 7, 0, 0, 800, 800, "exploration", {1, 1, false, true, true, 8, 2}},
    {2, 32, 64, 64, 9, 0, 0, 800, 800, "exploration", {1, 1, false, true, true, 8, 2}},
    {2, 16, 128, 64, 12, 0, 0, 800, 800, "exploration", {2, 1, false, true, true, 8, 1}},
    {2, 16, 64, 64, 10, 0, 0, 800, 800, "exploration", {1, 1, false, true, true, 8, 2}},
    {4, 128, 256, 32, 4, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 16, 1}},
    {4, 128, 192, 32, 4, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {4, 128, 128, 32, 6, 0, 0, 800, 800, "exploration", {2, 1, true, false, false, 8, 1}},
    {4, 128, 64, 32, 7, 0, 0, 800, 800, "exploration", {2, 1, false, false, false, 8, 1}},
    {4, 128, 128, 32, 7, 0, 0, 800, 800, "exploration", {2, 1, false, true, false, 8, 1}},
    {4, 64, 64, 32, 7, 0, 0, 800, 800, "exploration", {1, 1, false, true, true, 8, 2}},
    {4, 16, 64, 32, 10, 0, 0, 800, 800, "exploration", {1, 1, false, true, true, 8, 2}},
    {1, 128, 256, 128, 4, 0, 0, 1600, 1600, "exploration", {2, 1, false, false, false, 16, 1}},
    {1, 128, 192, 128, 4, 0, 0, 1600, 1600, "exploration", {2, 1, false, false, false, 8, 1}},
    {1, 128, 128, 128, 6, 0, 0, 1600, 1600, "exploration", {2, 1, false, false, false, 8, 1}},
    {1, 128, 128, 128, 5, 0, 0, 1600, 1600, "exploration", {2, 1, true, false, false, 8, 1}},
    {1, 64, 256, 128, 4, 0, 0, 1600, 1600, "exploration", {2, 1, true, false, false, 8, 1}},
    {1, 128, 160, 128, 5, 0, 0, 1600, 1600, "exploration", {2, 1, false, false, false, 8, 1}},
    {1, 128, 96, 128, 6, 0, 0, 1600, 1600, "exploration", {2, 1, false, false, false, 8, 1}},
    {1, 64, 128, 128, 6, 0, 0, 1600, 1600, "exploration", {2, 1, true, false, false, 8, 1}},
    {1, 128, 128, 128, 7, 0, 0, 1600, 1600, "exploration", {2, 1, false, true, false, 8, 1}},
    {1, 64, 128, 128, 9, 0, 0, 1600, 1600, "exploration", {2, 1, false, true, true, 8, 1}},
    {1, 64, 64, 128, 7, 0, 0, 1600, 1600, "exploration", {1, 1, false, true, true, 8, 2}},
    {1, 32, 64, 128, 14, 0, 0, 1600, 1600, "exploration", {1, 1, false, false, true, 8, 1}},
    {1, 16, 64, 128, 16, 0, 0, 1600, 1600, "exploration", {1, 1, false, false, true, 8, 1}},
    {1, 16, 64, 128, 10, 0, 0, 1600, 1600, "exploration", {1, 1, false, true, true, 8, 2}},
    {1, 64, 64, 128, 12, 0, 0, 1600, 1600, "exploration", {1, 1, false, false, true, 8, 1}},
};

// An operand whose K lies along its columns is loaded in blocks of 64 of them, of which a CTA's share
// of the tile must consist.
bool has_whole_blocks(const GemmConfig& config, const GemmTraits& traits) {
  const Sm90Form& form = config.sm90;
  const int share_m = config.block_m / (form.swapped ? form.cluster : 1);
  const int share_n = config.block_n / (form.swapped ? 1 : form.cluster);
  return (traits.major_a == Major::k || share_m % 64 == 0) &&
         (traits.major_b == Major::k || share_n % 64 == 0);
}

int arch_number(int arch) { return arch_table()[static_cast<std::size_t>(arch)].number; }

}  // namespace

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config) <= arch_table()[static_cast<std::size_t>(arch)].shared_bytes &&
         (!config.is_sm90() ||
          (why_not_sm90(traits, arch, 1).empty() && has_whole_blocks(config, traits)));
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
