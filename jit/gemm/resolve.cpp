// GEMM's problem -> recipe: the row, the grid, and who shares a tile.
#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "jit/gemm/config.h"
#include "jit/gemm/groups.h"
#include "jit/op/checks.h"
#include "jit/op/occupancy.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

[[noreturn]] void refuse_tile(const GemmProblem& problem, int arch) {
  std::string rows;
  for (const GemmRow row : gemm_rows(problem.traits, arch)) {
    rows += (rows.empty() ? "" : ", ") +
            (row.is_sm90() ? tile_name(row.sm90()) : tile_name(row.portable()));
  }
  const GemmTile& tile = *problem.tile;
  throw std::invalid_argument(
      "gemm: config must be one of " + rows + " (block_m x block_n x block_k x stages), got " +
      std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n) + "x" +
      std::to_string(tile.block_k) + "x" + std::to_string(tile.stages) +
      (tile.cluster == 0 ? "" : " cluster " + std::to_string(tile.cluster)) +
      (tile.splits == 0 ? "" : " splits " + std::to_string(tile.splits)));
}

// Its kernels are for one arch alone, which the checks of the arguments do not know.
void check_f8_arch(const GemmProblem& problem, const runtime::Device& device) {
  const runtime::DeviceInfo& info = device.info();
  if (!is_f8(problem.traits.input) || (info.compute_major == 9 && info.compute_minor == 0)) return;
  throw TypeError(std::string("gemm: a is ") + name(problem.traits.input) +
                  ", which needs a device of compute capability 9.0 (Hopper), and this one has " +
                  std::to_string(info.compute_major) + "." + std::to_string(info.compute_minor) +
                  "; cast a and b to bfloat16");
}

GemmRow overridden_row(const GemmProblem& problem, int arch, bool may_split) {
  const GemmRow row = find_gemm_row(problem.traits, arch, *problem.tile);
  if (!row.exists()) refuse_tile(problem, arch);
  if (row.is_sm90() && row.sm90().apart && !may_split) {
    throw std::invalid_argument("gemm: config is " + tile_name(row.sm90()) +
                                ", whose parts of K meet in a workspace: set "
                                "options.workspace, or name another config or none");
  }
  return row;
}

// The rows and columns of the problem that a cluster computes at a time.
struct ClusterTile {
  int rows, columns;
};
ClusterTile cluster_tile(const GemmSm90Config& config) {
  return {config.block_m * (config.swapped ? 1 : config.cluster),
          config.block_n * (config.swapped ? config.cluster : 1)};
}

// Persistent: as many clusters as the device holds at once, or as there are tiles (a cluster that
// waited for another's end would then compute its own share of the tiles all alone). A cluster for
// each tile where K is split, and where CTAs share columns and K is long: those of one wave do not
// end together, and the next tile goes to whoever is free (1.02 to 1.05 times as fast at K = 8192
// and 4 CTAs, 1.01 at 4096, but 0.91 at 3584, where starting anew weighs more).
unsigned sm90_grid(const GemmProblem& problem, const GemmSm90Config& config, int splits,
                   const runtime::Device& device) {
  const auto [rows, columns] = cluster_tile(config);
  const long long tiles = most_tiles(problem, rows, columns);
  if (config.splits) return grid_of(tiles * splits * config.cluster);
  constexpr int kLongK = 4096;
  if (config.cluster > 1 && problem.k >= kLongK) return grid_of(tiles * config.cluster);
  const long long clusters =
      clusters_at_once(config.cluster, config.residents, device.info().sm_count);
  return static_cast<unsigned>(std::min<long long>(grid_of(tiles), clusters) * config.cluster);
}

// The portable kernel's grid, and the workspace where CTAs share tiles.
void resolve_portable(GemmProblem& problem, const GemmChoice& choice) {
  const GemmConfig& config = choice.row.portable();
  const long long tiles = most_tiles(problem, config.block_m, config.block_n);
  const long long parts = choice.splits == 1 ? 0 : (tiles - choice.whole_tiles) * choice.splits;
  Step& step = problem.recipe.first();
  step.blocks = grid_of(parts == 0 ? tiles : choice.whole_tiles + parts);
  step.whole_tiles = choice.whole_tiles;
  const auto bytes =
      static_cast<std::size_t>(gemm_workspace_bytes(parts, config.block_m, config.block_n));
  if (bytes == 0) return;
  step.arguments.set_int(offsetof(GemmParams, splits), choice.splits);
  step.arguments.set_int(offsetof(GemmParams, whole_tiles),
                         static_cast<int>(choice.whole_tiles));  // fits where the grid does
  step.arguments.want_workspace(offsetof(GemmParams, workspace), 0, bytes,
                                offsetof(GemmParams, nonce));
  problem.recipe.workspace_bytes = bytes;
}

// Rows of a box that lie outside the matrix cost the copy engine more than those inside: with 72
// tokens in tiles of 128, a kernel took 39.0 us, and 26.6 without them (N = 3584, K = 8192; H200).
// Fewer than 16 cost nothing there, but up to 1.25 times the time where L2 bounds narrow tiles (11
// of 80 tokens, N = 59136: 365 us, 296 without them); in tiles of 16 and 32 tokens none cost
// anything. `extent`: of the operand, of which a tile has `tile`; where K is not contiguous, whole
// blocks of 64 are loaded.
GemmTail tail_of(int extent, int tile, Major major) {
  constexpr int kLeastTile = 64, kBlock = 64;
  if (extent == 0 || tile < kLeastTile) return {-1, 0};
  const int begin = (extent - 1) / tile * tile;
  int count = extent - begin;
  if (major == Major::mn) count = (count + kBlock - 1) / kBlock * kBlock;
  if (count == tile) return {-1, 0};
  return {begin, count};
}

// The last tiles of a and b that are loaded in part. What CTAs of a cluster share is not, nor pairs
// of columns; and where groups end, the device alone knows.
void set_tails(const GemmProblem& problem, const GemmSm90Config& config, GemmRaster& raster) {
  const GemmTraits& traits = problem.traits;
  if (traits.grouping != Grouping::none) return;
  const bool shared = config.cluster > 1;
  GemmTail a{-1, 0}, b{-1, 0};
  if (!(config.swapped && shared)) a = tail_of(problem.m, config.block_m, traits.major_a);
  if (traits.gate == Gate::none && (config.swapped || !shared)) {
    b = tail_of(problem.n, config.block_n, traits.major_b);
  }
  raster.row_tail = config.swapped ? b : a;
  raster.column_tail = config.swapped ? a : b;
}

}  // namespace

// The number of tiles fits, as the grid's size was checked. An empty output, which is explained but
// not computed, counts as one tile.
void set_raster(const GemmProblem& problem, const GemmSm90Config& config, int splits, Step& step) {
  const auto [rows, columns] = cluster_tile(config);
  int down = std::max(1, static_cast<int>(gemm_tiles(problem.m, 1, 1, rows, 1)));
  int across = std::max(1, static_cast<int>(gemm_tiles(1, problem.n, 1, 1, columns)));
  if (config.swapped) std::swap(down, across);
  GemmRaster raster = gemm_raster(down, across, config.raster_rows);
  const int k_tiles = (problem.k + config.block_k - 1) / config.block_k;
  raster.part_k_tiles = k_tiles / splits, raster.longer_parts = k_tiles % splits;
  set_tails(problem, config, raster);
  raster.parts = splits;
  if (config.apart) raster.tiles = gemm_divisor(down * across * std::max(1, problem.batch));
  step.arguments.set_value(offsetof(GemmParams, raster), raster);
}

void want_parts(GemmProblem& problem, const GemmSm90Config& config, int splits, Step& step) {
  const auto [rows, columns] = cluster_tile(config);
  const long long tiles = most_tiles(problem, rows, columns);
  const auto bytes = static_cast<std::size_t>(gemm_flag_bytes(tiles * config.groups) +
                                              tiles * splits * config.block_m * config.block_n *
                                                  static_cast<long long>(sizeof(float)));
  step.arguments.want_workspace(offsetof(GemmParams, workspace), 0, bytes,
                                offsetof(GemmParams, nonce));
  problem.recipe.workspace_bytes = bytes;
}

void require_vectors(const GemmTraits& baked, CallArguments& arguments) {
  constexpr std::size_t kVectorBytes = 16;
  if (baked.loads != Access::elements) {
    arguments.require_alignment(0, kVectorBytes);  // a
    arguments.require_alignment(1, kVectorBytes);  // b
  }
  if (baked.stores != Access::elements) arguments.require_alignment(2, kVectorBytes);  // out
  if (baked.stores != Access::vectors) return;
  // Of the scales, which follow, only those of columns are read by vectors, and none of an
  // epilogue's tensors.
  const std::size_t scales = 3 + (baked.bias != DType::none) + (baked.residual != DType::none);
  for (std::size_t i = 3; i < scales; ++i) arguments.require_alignment(i, kVectorBytes);
  const std::size_t scale_b = scales + (baked.scale_a != Scale::none);
  if (baked.scale_b == Scale::vector) arguments.require_alignment(scale_b, kVectorBytes);
}

void resolve(GemmProblem& problem, const runtime::Device& device, bool may_split) {
  const int arch = arch_of(device);
  check_f8_arch(problem, device);
  const GemmChoice choice =
      choose_gemm(problem.traits, arch, extent_of(problem), device.info().sm_count,
                  may_split && problem.traits.grouping == Grouping::none,
                  problem.tile ? overridden_row(problem, arch, may_split) : GemmRow{},
                  problem.tile ? problem.tile->splits : 0);
  Step& step = problem.recipe.first();
  step.spec = gemm_specialization(arch, choice.row, problem.traits);
  step.splits = choice.splits;
  problem.measured_m = choice.measured_m;
  require_vectors(step.spec.traits_as<GemmTraits>(), step.arguments);
  step.programmatic = problem.pdl != Pdl::off;
  if (!choice.row.is_sm90()) return resolve_portable(problem, choice);
  const GemmSm90Config& config = choice.row.sm90();
  // Thread blocks that begin early go to the multiprocessors that are free first. If two fit on
  // one, they would share it while others stay idle: 3 us more a kernel in a chain of GEMMs.
  if (config.residents > 1) step.programmatic = false;
  step.blocks = sm90_grid(problem, config, choice.splits, device);
  step.cluster = static_cast<unsigned>(config.cluster * (config.apart ? 1 : choice.splits));
  set_raster(problem, config, choice.splits, step);
  if (config.apart) want_parts(problem, config, choice.splits, step);
}

double flops_of(const GemmProblem& problem) {
  const int matrices = problem.traits.grouping == Grouping::offsets ? 1 : problem.batch;
  return 2.0 * problem.m * problem.n * problem.k * matrices;
}

}  // namespace kiln
