#include <algorithm>

#include "jit/arch.h"
#include "jit/config.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

// Registers a thread for the accumulator of O: head_dim_v / 2 for each 16 query rows of its warp; S
// takes block_kv / 2. 32 rows a warp halve the shared-memory reads of K and V, but fit 255
// registers up to head dim 64 only: 128x64 with 4 warps at head dim 128 spills 20 to 112 bytes.
constexpr AttentionConfig kConfigs[] = {
    {16, 64, 64, 64, 4, 64, UserVariant::any,
     "up to 64 query rows: half the tile, twice the CTAs; the user's code finds registers"},
    {16, 64, 128, 64, 4, 0, UserVariant::without,
     "32 rows a warp: K and V are read from shared memory half as often; 210 registers"},
    {80, 128, 64, 64, 4, 64, UserVariant::any,
     "up to 64 query rows: half the tile, twice the CTAs; 165 registers"},
    {80, 128, 128, 64, 8, 0, UserVariant::any,
     "16 rows a warp, as 32 would spill at this head dim; 171 registers"},
    {144, 192, 64, 64, 4, 0, UserVariant::without,
     "16 rows a warp; 173 registers, 72 KB fit every arch"},
    {144, 192, 64, 32, 4, 0, UserVariant::with,
     "narrower, so that the user's code finds registers"},
    {208, 256, 64, 64, 4, 0, UserVariant::without,
     "16 rows a warp; O takes 128 of 255 registers, 96 KB fit every arch"},
    {208, 256, 64, 32, 4, 0, UserVariant::with,
     "narrower, so that the user's code finds registers"},
};

bool serves(const AttentionConfig& config, const AttentionTraits& traits, int arch) {
  const int dim =
      std::max(attention_padded_dim(traits.head_dim), attention_padded_dim(traits.head_dim_v));
  const UserVariant other =
      traits.variant == Digest128{} ? UserVariant::with : UserVariant::without;
  return config.min_dim <= dim && dim <= config.max_dim && config.user_variant != other &&
         shared_bytes(config, traits) <= arch_table()[arch].shared_bytes;
}

}  // namespace

std::span<const AttentionConfig> attention_configs() { return kConfigs; }

int shared_bytes(const AttentionConfig& config, const AttentionTraits& traits) {
  return attention_shared_bytes(traits.head_dim, traits.head_dim_v, config.block_q,
                                config.block_kv);
}

std::string tile_name(const AttentionConfig& config) {
  return std::to_string(config.block_q) + "x" + std::to_string(config.block_kv);
}

std::vector<int> attention_rows(const AttentionTraits& traits, int arch) {
  std::vector<int> rows;
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    if (serves(kConfigs[row], traits, arch)) rows.push_back(row);
  }
  return rows;
}

int pick_attention_row(const AttentionTraits& traits, int arch, std::int64_t len_q) {
  int last = -1;
  for (int row = 0; row < static_cast<int>(std::size(kConfigs)); ++row) {
    if (!serves(kConfigs[row], traits, arch)) continue;
    if (kConfigs[row].max_len_q == 0 || len_q <= kConfigs[row].max_len_q) return row;
    last = row;
  }
  return last;
}

}  // namespace kiln
