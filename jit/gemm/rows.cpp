// Which rows of the table serve a problem, and what of it their kernels depend on.
#include "jit/gemm/rows.h"

#include <algorithm>

#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// An operand whose K lies along its columns is loaded in blocks of 64 of them, of which a CTA's
// share of the tile must consist.
bool has_whole_blocks(const GemmSm90Config& config, const GemmTraits& traits) {
  const int share_m = config.block_m / (config.swapped ? config.cluster : 1);
  const int share_n = config.block_n / (config.swapped ? 1 : config.cluster);
  return (traits.major_a == Major::k || share_m % 64 == 0) &&
         (traits.major_b == Major::k || share_n % 64 == 0);
}

// Products of 8-bit floats that go to sums in fp32 after every K-tile: up to 192 columns at once,
// or a half of the tile's at a time, by two groups at once. With turns, one would add while the
// tensor cores wait for it: 0.6 of the speed. Sums and products of 192 columns are as many
// registers as sums of 256 and products of 128; they gain 2.6 % at 8192^3. Scales of columns are as
// many again as a quarter of the products, which leaves registers for 160 columns. Beside a
// residual, tiles of 224 columns took 1.12 times as long as those of 256.
bool can_promote(const GemmSm90Config& config, const GemmTraits& traits) {
  const int columns = config.swapped ? config.block_m : config.block_n;
  if (config.ping_pong) return false;
  if (!traits.block_scaled()) return columns <= 192 || columns % 128 == 0;
  if (columns == 224 && traits.residual != DType::none) return false;
  return config.cluster == 1 && (traits.scale_b != Scale::groups || columns <= 160);
}

// Scales of blocks give each row of a a factor. Where a is the columns of the product, a thread has
// as many of these as a quarter of the tile's: 64 x 64 took 0.76 to 0.99 of the time that 64 x 64
// swapped took (649 problems).
bool can_swap(const GemmSm90Config& config, const GemmTraits& traits) {
  return !config.swapped || !traits.block_scaled() || config.block_m < 64;
}

// Gates and their partners are a half of the tile's columns each: of whole pairs of accumulators,
// or of whole blocks. Where the columns are rows of the product, eight gates and their partners
// take turns, and no group of eight may cross the end of the gates: whole vectors of 8 or 16 bits
// say so.
bool can_gate(const GemmSm90Config& config, const GemmTraits& traits) {
  if (traits.gate == Gate::none) return true;
  const bool by_k = traits.major_b == Major::k;
  if (config.swapped) {
    return by_k && traits.stores == Access::vectors && size_of(traits.output) <= 2;
  }
  return config.cluster == 1 && config.block_n % (by_k ? 32 : 128) == 0;
}

// The rows of a slab of 8-bit outputs are 32 or 64 bytes, of which the tile's must consist. Beside
// them a residual is read by elements, for which groups that take turns have too few registers.
bool can_store(const GemmSm90Config& config, const GemmTraits& traits) {
  if (size_of(traits.output) != 1) return true;
  if (config.ping_pong && traits.residual != DType::none) return false;
  const int columns = traits.gate == Gate::none ? config.block_n : config.block_n / 2;
  return config.swapped || columns % 32 == 0;
}

// Tiles for numbers of rows that no tile of 128 fills. A residual makes them 1.05 to 1.32 times as
// slow as others (14 of 40 problems), since a swapped tile reads it by elements. Three groups would
// spill promoted sums. Rows in groups were not measured.
bool can_fit_rows(const GemmSm90Config& config, const GemmTraits& traits) {
  const bool is_swapped = config.swapped && config.block_m > 64 && config.block_m != 128;
  if (config.groups <= 2 && !is_swapped) return true;  // it is another tile
  return traits.grouping == Grouping::none && !(config.swapped && traits.residual != DType::none);
}

// Rows in groups are found tile by tile, by each CTA for itself. Tiles of 128 x 128 in turns were
// up to 1.28 times as slow there as those of 128 x 256 (4 and 8 groups of 1000 rows and more).
bool can_group(const GemmSm90Config& config, const GemmTraits& traits) {
  return traits.grouping == Grouping::none ||
         (config.cluster == 1 && !config.splits && !config.ping_pong);
}

const Arch& limits(int arch) { return arch_table()[static_cast<std::size_t>(arch)]; }

// What a caller's tile names, of either table. `cluster` and `splits` are of sm_90a rows.
template <class Config>
bool is_named(const Config& config, const GemmTile& tile) {
  return config.block_m == tile.block_m && config.block_n == tile.block_n &&
         config.block_k == tile.block_k && config.stages == tile.stages;
}

}  // namespace

bool is_promoted(const GemmTraits& traits) { return is_f8(traits.input) && !traits.fast; }

bool GemmRow::is_sm90() const { return kernel == &kGemmSm90; }

bool serves(const GemmConfig& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config) <= limits(arch).shared_bytes;
}

bool serves(const GemmSm90Config& config, const GemmTraits& traits, int arch) {
  return config.element_bytes == size_of(traits.input) &&
         shared_bytes(config, traits) <= limits(arch).shared_bytes &&
         why_not_sm90(traits, arch).empty() && has_whole_blocks(config, traits) &&
         can_gate(config, traits) && can_store(config, traits) && can_group(config, traits) &&
         (!is_promoted(traits) || can_promote(config, traits)) &&
         (!config.block_scaled || traits.block_scaled()) && can_swap(config, traits) &&
         can_fit_rows(config, traits);
}

int most_splits(const GemmSm90Config& config) {
  constexpr int kMostApart = 8;  // a word of templates/gemm/sm90/meet.cuh has room for so many
  if (!config.splits) return 1;
  return config.apart ? kMostApart : kMostCluster / config.cluster;
}

int shared_bytes(const GemmConfig& config) {
  return gemm_shared_bytes(config.block_m, config.block_n, config.block_k, config.stages,
                           config.element_bytes);
}

int shared_bytes(const GemmSm90Config& config, const GemmTraits& traits) {
  const int bias_count = config.swapped ? config.block_n / config.groups : config.block_n;
  if (!traits.block_scaled()) {
    return gemm_sm90_shared_bytes(config.block_m, config.block_n, config.stages, config.groups,
                                  bias_count, config.splits);
  }
  int columns = config.block_n / gemm_scale_run(config.block_n, traits.scale_b == Scale::blocks);
  int rows = config.block_m;
  if (config.swapped) std::swap(columns, rows);
  return gemm_sm90_shared_bytes(config.block_m, config.block_n, config.stages, config.groups,
                                traits.bias == DType::none ? 0 : bias_count, config.splits,
                                gemm_scale_words(columns, rows));
}

std::string tile_name(const GemmConfig& config) {
  return std::to_string(config.block_m) + "x" + std::to_string(config.block_n) + "x" +
         std::to_string(config.block_k) + "x" + std::to_string(config.stages);
}

std::string tile_name(const GemmSm90Config& config) {
  std::string name = std::to_string(config.block_m) + "x" + std::to_string(config.block_n) + "x" +
                     std::to_string(config.block_k) + "x" + std::to_string(config.stages);
  if (config.splits) name += config.apart ? " split apart" : " split";
  if (config.cluster > 1) name += " cluster " + std::to_string(config.cluster);
  if (config.ping_pong) name += " ping-pong";
  if (config.swapped) name += " swapped";
  return name;
}

GemmRow first_portable_row(const GemmTraits& traits, int arch) {
  GemmRow first;
  for_each_of(kGemmPortable, gemm_configs(), traits, arch, [&](GemmRow row) {
    if (!first.exists()) first = row;
  });
  return first;
}

std::vector<GemmRow> gemm_rows(const GemmTraits& traits, int arch) {
  std::vector<GemmRow> rows;
  for_each_row(traits, arch, [&](GemmRow row) { rows.push_back(row); });
  const GemmRow portable = first_portable_row(traits, arch);
  if (portable.exists() && std::find(rows.begin(), rows.end(), portable) == rows.end()) {
    rows.insert(rows.begin(), portable);  // for K = 0
  }
  return rows;
}

std::vector<GemmRow> all_gemm_rows(const GemmTraits& traits, int arch) {
  std::vector<GemmRow> rows;
  const auto add = [&](GemmRow row) { rows.push_back(row); };
  for_each_of(kGemmPortable, gemm_configs(), traits, arch, add);
  for_each_of(kGemmSm90, gemm_sm90_configs(), traits, arch, add);
  return rows;
}

GemmRow find_gemm_row(const GemmTraits& traits, int arch, const GemmTile& tile) {
  GemmRow found;
  const auto offer = [&](GemmRow row, bool is_meant) {
    if (!found.exists() && is_meant) found = row;
  };
  for_each_of(kGemmPortable, gemm_configs(), traits, arch, [&](GemmRow row) {
    offer(row, is_named(row.portable(), tile) && tile.cluster <= 1 && tile.splits == 0);
  });
  for_each_of(kGemmSm90, gemm_sm90_configs(), traits, arch, [&](GemmRow row) {
    const GemmSm90Config& config = row.sm90();
    offer(row, is_named(config, tile) && (tile.cluster == 0 || config.cluster == tile.cluster) &&
                   (tile.splits == 0 || (config.splits && tile.splits <= most_splits(config))));
  });
  return found;
}

std::string why_not_sm90(const GemmTraits& traits, int arch) {
  if (limits(arch).number != 90) return "wgmma is an instruction of compute capability 9.0 alone";
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
  return "";
}

bool has_residual_boxes(const GemmTraits& traits, const GemmSm90Config& config) {
  return traits.residual != DType::none && traits.stores == Access::vectors &&
         size_of(traits.residual) == size_of(traits.output) && !config.swapped && !config.splits &&
         !traits.block_scaled() &&           // whose stages have one more producer
         traits.grouping == Grouping::none;  // a box would be of other groups, too
}

Specialization gemm_specialization(int arch, GemmRow row, const GemmTraits& traits) {
  GemmTraits baked = traits;
  if (row.is_sm90()) {
    baked.loads = Access::boxes;  // or better
  } else {
    if (baked.loads == Access::boxes) baked.loads = Access::elements;
    if (baked.stores == Access::boxes) baked.stores = Access::elements;
  }
  return Specialization(*row.kernel, arch, row.row, baked);
}

}  // namespace kiln
