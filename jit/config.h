// The closed tables of tile configs and the pure functions that pick a row. A row's reason stands
// beside it in attention_config.cpp and gemm_config.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/specialization.h"

namespace kiln {

// What a kernel does beside its products, which a tile must leave registers for. Light: causal and
// window masks, sinks. Medium: our code at every logit (softcap, ALiBi). Heavy: a user's, or copies
// through registers (tensors that are not 16-byte aligned). Pairs: a load for every two logits, of
// an attn_mask. Gather: one at every logit, whose addresses take registers too.
enum class Work : std::uint8_t { light, medium, pairs, heavy, gather };
enum class Masks : std::uint8_t { any, none, some };

struct AttentionConfig {
  int min_dim, max_dim;  // serves head dims whose larger one, padded to 16, lies in this range
  int block_q, block_kv, warps;
  int teams;      // see flash_attention.cuh; more than 1: for up to block_q rows
  int partners;   // warps that share rows; see partners.cuh
  int stages;     // tiles of keys in shared memory
  bool splits;    // packs the heads of a KV head into a tile, and CTAs may share its keys
  int residents;  // CTAs that must fit the shared memory of a multiprocessor
  Work work;      // the heaviest that it serves
  Masks masks;
  int since;  // the first arch that it serves, as a number: ptxas may spill for older ones
  std::string_view reason;
  int max_keys = 0;   // for windows in which a query sees at most so many; 0: any problem
  int spills_on = 0;  // major compute capability for which ptxas spills it: not used there
};

// The row for one call, and how many CTAs share a tile.
struct Choice {
  int row = 0;
  int splits = 1;
  std::int64_t whole_tiles = 0;  // GEMM: the first tiles of a launch with splits, not split
  std::int64_t measured_m = 0;   // GEMM: of the tuning entry that named the row; 0: none did
};

inline constexpr int kMostCluster = 8;  // CTAs in a cluster; more are not portable

// What a row of the sm_90a kernel (templates/gemm/sm90/) has beside its tile.
struct Sm90Form {
  int groups = 0;   // math warpgroups; 0: the row is none of these
  int cluster = 1;  // CTAs along M that share the columns which they load
  bool ping_pong = false;
  bool splits = false;   // CTAs of a cluster share a tile, each with a part of K
  bool swapped = false;  // computes the transposed output: N of the problem is M of wgmma
  int raster_rows = 8;   // tiles of the cluster that are walked down before going right
  int residents = 1;     // CTAs that fit on a multiprocessor
};

struct GemmConfig {
  int element_bytes;  // of a and b
  int block_m, block_n, block_k, stages;
  int warps_m, warps_n;  // of the portable kernel
  // Outputs a microsecond of one multiprocessor of an H200 at K = 4096: with one CTA of this row on
  // it, and with as many as fit.
  int rate_alone, rate_full;
  std::string_view reason;
  Sm90Form sm90 = {};

  bool is_sm90() const { return sm90.groups != 0; }
};

std::span<const AttentionConfig> attention_configs();
std::span<const GemmConfig> gemm_configs();

int shared_bytes(const AttentionConfig& config, const AttentionTraits& traits);
int shared_bytes(const GemmConfig& config);
std::string tile_name(const AttentionConfig& config);  // "128x64x2", "64x64x2 split"
std::string tile_name(const GemmConfig& config);       // "128x128x32x3", "128x256x64x4 cluster 2"

// Every row that these traits can ever use on an arch, whatever the lengths: what prewarming needs.
std::vector<int> attention_rows(const AttentionTraits& traits, int arch);
std::vector<int> gemm_rows(const GemmTraits& traits, int arch);
// And those that only a caller who names a tile gets.
std::vector<int> all_gemm_rows(const GemmTraits& traits, int arch);

// The specialization of a row for a problem: of its traits, what this row's kernel depends on.
Specialization gemm_specialization(int arch, int row, const GemmTraits& traits);
bool is_sm90_gemm(const Specialization& spec);
// Whether a row's kernel reads the residual by boxes of a tensor map.
bool has_residual_boxes(const GemmTraits& traits, const GemmConfig& config);
// Of sm_90a rows, "" or why they do not serve a problem: one sentence.
std::string why_not_sm90(const GemmTraits& traits, int arch, std::int64_t k);

// What of a problem decides about its tile. `keys`: the most that one query sees.
struct AttentionExtent {
  std::int64_t batch = 0, heads = 0, heads_kv = 0, len_q = 0, keys = 0;
};

struct GemmExtent {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
};

// The choice for one call: of GEMM what a tuning table (gemm_tuning.h) has, if it has the problem,
// else by the cost model. `sm_count` weighs waves of tiles. Never returns a row outside the lists
// above, and never fails for traits that the problem checks let through. May only split a tile's
// work where the caller gave a workspace.
Choice choose_attention(const AttentionTraits& traits, int arch, const AttentionExtent& extent,
                        int sm_count, bool may_split);
// `only_row`, from 0 on: a row that the caller chose; `only_splits`: with so many CTAs that share a
// tile of an sm_90a row with splits, 0 = any.
Choice choose_gemm(const GemmTraits& traits, int arch, const GemmExtent& extent, int sm_count,
                   bool may_split, int only_row = -1, int only_splits = 0);

// The row of a tile that the caller or a tuning table named; -1 when these traits have none.
int find_gemm_row(const GemmTraits& traits, int arch, const GemmTile& tile);

// Every combination of traits that the built-in tables serve, one row each, without user variants
// and expressions: the list that compile tests walk.
std::vector<Specialization> enumerate_specializations(int arch);

}  // namespace kiln
