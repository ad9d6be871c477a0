// Which rows of the table serve a problem, and what of it their kernels depend on.
#include "jit/gemm_rows.h"

#include <algorithm>

#include "jit/arch.h"
#include "jit/argument_errors.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

int row_count() { return static_cast<int>(gemm_configs().size()); }
const GemmConfig& config_of(int row) { return gemm_configs()[static_cast<std::size_t>(row)]; }

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
  for (int row = 0; row < row_count(); ++row) {
    if (!config_of(row).is_sm90() && serves(config_of(row), traits, arch)) return row;
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
  for (int row = 0; row < row_count(); ++row) {
    if (serves(config_of(row), traits, arch)) rows.push_back(row);
  }
  return rows;
}

int find_gemm_row(const GemmTraits& traits, int arch, const GemmTile& tile) {
  for (int row = 0; row < row_count(); ++row) {
    const GemmConfig& config = config_of(row);
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
