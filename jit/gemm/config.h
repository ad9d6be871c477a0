// The closed tables of GEMM's tiles, one for each template, and the pure functions that pick a row.
// A row's reason stands beside it in table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/gemm/problem.h"
#include "jit/op/family.h"
#include "jit/op/occupancy.h"

namespace kiln {

// A row of the portable kernel (templates/gemm/gemm.cuh).
struct GemmConfig {
  int element_bytes;  // of a and b
  int block_m, block_n, block_k, stages;
  int warps_m, warps_n;
  // Outputs a microsecond of one multiprocessor of an H200 at K = 4096: with one CTA of this row on
  // it, and with as many as fit.
  int rate_alone, rate_full;
  std::string_view reason;
};

// A row of the sm_90a kernel (templates/gemm/sm90/). A K-tile is 128 bytes, as far as a swizzle
// goes.
struct GemmSm90Config {
  int element_bytes;  // of a and b
  int block_m, block_n, stages;
  int groups;       // math warpgroups
  int cluster = 1;  // CTAs along M that share the columns which they load
  bool ping_pong = false;
  bool splits = false;   // CTAs of a cluster share a tile, each with a part of K
  bool apart = false;    // these CTAs are of no cluster, and meet in a workspace
  bool swapped = false;  // computes the transposed output: N of the problem is M of wgmma
  // Rows of tiles of the cluster that are walked down before going right. A GPU's processing
  // clusters (GPC) of 16 to 18 multiprocessors take thread blocks that follow each other, and L2
  // serves the reads that they have in common once: 16 tiles of 128x128 in 4 rows have 8 blocks of
  // rows or columns, in 8 rows 10, in 16 rows 17. More rows read b less often from memory.
  int raster_rows = 8;
  int residents = 1;          // CTAs that fit on a multiprocessor
  bool block_scaled = false;  // for scales of blocks alone, whose stages hold scales, too
  std::string_view reason;
  int block_k = 128 / element_bytes;
};

std::span<const GemmConfig> gemm_configs();
std::span<const GemmSm90Config> gemm_sm90_configs();

// These pick a row by its number.
inline const GemmConfig& gemm_config(int row) {
  return gemm_configs()[static_cast<std::size_t>(row)];
}
inline const GemmSm90Config& gemm_sm90_config(int row) {
  return gemm_sm90_configs()[static_cast<std::size_t>(row)];
}

// The most CTAs that may share a tile.
int most_splits(const GemmSm90Config& config);

int shared_bytes(const GemmConfig& config);
int shared_bytes(const GemmSm90Config& config, const GemmTraits& traits);
std::string tile_name(const GemmConfig& config);      // "128x128x32x3"
std::string tile_name(const GemmSm90Config& config);  // "128x256x64x4 cluster 2"

// A row of one of the two tables.
struct GemmRow {
  const Template* kernel = nullptr;  // null: no row
  int row = 0;

  bool exists() const { return kernel != nullptr; }
  bool is_sm90() const;
  bool operator==(const GemmRow&) const = default;
  // Requires: is_sm90() is false; is true.
  const GemmConfig& portable() const { return gemm_config(row); }
  const GemmSm90Config& sm90() const { return gemm_sm90_config(row); }
};

// Every row that these traits can ever use on an arch, whatever the sizes: what prewarming needs.
std::vector<GemmRow> gemm_rows(const GemmTraits& traits, int arch);
// And those that only a caller who names a tile gets.
std::vector<GemmRow> all_gemm_rows(const GemmTraits& traits, int arch);
// The row of a tile that the caller or a tuning table named; none when these traits have no such.
GemmRow find_gemm_row(const GemmTraits& traits, int arch, const GemmTile& tile);

// The specialization of a row for a problem: of its traits, what this row's kernel depends on.
Specialization gemm_specialization(int arch, GemmRow row, const GemmTraits& traits);
// Tells a launch of an sm_90a row where its tiles lie (GemmRaster). `splits`: the CTAs of a cluster
// that share a tile.
void set_raster(const GemmProblem& problem, const GemmSm90Config& config, int splits, Step& step);
// Gives a launch of a row whose parts of K meet in a workspace its own: a word for each math group
// of a tile, then the parts.
void want_parts(GemmProblem& problem, const GemmSm90Config& config, int splits, Step& step);
// Whether an sm_90a row's kernel reads the residual by boxes of a tensor map.
bool has_residual_boxes(const GemmTraits& traits, const GemmSm90Config& config);
// Of sm_90a rows, "" or why they do not serve such kernels: one sentence.
std::string why_not_sm90(const GemmTraits& traits, int arch);

// The sizes of a problem that decide about its tile.
struct GemmExtent {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
};

// The row for one call, and how many CTAs share a tile.
struct GemmChoice {
  GemmRow row;
  int splits = 1;
  std::int64_t whole_tiles = 0;  // the first tiles of a launch with splits, not split
  std::int64_t measured_m = 0;   // of the tuning entry that named the row; 0: none did
};
// What a tuning table (tuning.h) has, if it has the problem, else by the cost model. `sm_count`
// weighs waves of tiles. Never returns a row outside the lists above, and never fails for traits
// that the problem checks let through. `only`: a row that the caller chose; `only_splits`: with so
// many CTAs that share a tile of an sm_90a row with splits, 0 = any.
GemmChoice choose_gemm(const GemmTraits& traits, int arch, const GemmExtent& extent, int sm_count,
                       bool may_split, GemmRow only = {}, int only_splits = 0);

}  // namespace kiln
