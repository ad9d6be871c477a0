// The closed table of attention's tiles, and the pure functions that pick a row. A row's reason
// stands beside it in table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/attention/problem.h"

namespace kiln {

// A tile must leave registers for the work that a kernel does beside its products. Light: causal
// and window masks, sinks. Medium: our code at every logit (softcap, ALiBi). Heavy: a user's, or
// copies through registers, as of tensors that are not aligned. Pairs: a load for every two logits,
// of an attn_mask. Gather: one at every logit, whose addresses take registers too.
enum class Work : std::uint8_t { light, medium, pairs, heavy, gather };
enum class Masks : std::uint8_t { any, none, some };

struct AttentionConfig {
  int min_dim, max_dim;  // serves head dims whose larger one, padded to 16, lies in this range
  int block_q, block_kv, warps;
  int teams = 1;        // see flash_attention.cuh; more than 1: for up to block_q rows
  int partners = 1;     // warps that share rows; see partners.cuh
  int stages;           // tiles of keys in shared memory
  bool splits = false;  // packs the heads of a KV head into a tile, and CTAs may share its keys
  int residents;        // CTAs that must fit the shared memory of a multiprocessor
  Work work;            // the heaviest that it serves
  Masks masks = Masks::any;
  int since = 80;      // the first arch that it serves, as a number: ptxas may spill for older ones
  int max_keys = 0;    // for windows in which a query sees at most so many; 0: any problem
  bool dense = false;  // spills where sequences have lengths of their own: not used there
  int key_bytes = 2;   // of an element: 1 in a quantised cache, see cache.cuh
  int spills_on = 0;   // major compute capability for which ptxas spills it: not used there
  std::string_view reason;
};

// Tells how heavy the code is that a kernel of these traits runs at every logit.
Work work_of(const AttentionTraits& traits);

std::span<const AttentionConfig> attention_configs();
inline const AttentionConfig& attention_config(int row) {
  return attention_configs()[static_cast<std::size_t>(row)];
}
int shared_bytes(const AttentionConfig& config, const AttentionTraits& traits);
std::string tile_name(const AttentionConfig& config);  // "128x64x2", "64x64x2 split"

// A row is made for one of these: up to 16 rows of all the heads that share a KV head, by two CTAs
// on a multiprocessor or by one; up to 32; up to 64; a few; many queries that see few keys; many.
// Of all but the last two, CTAs may share the keys of a tile.
enum class RowKind { decode, decode_alone, decode_32, decode_64, few, narrow, many };
// The row of a kind that such traits use on an arch; -1: none.
int row_of_kind(RowKind kind, const AttentionTraits& traits, int arch);
// The rows of several kinds, each row once.
std::vector<int> rows_of_kinds(std::span<const RowKind> kinds, const AttentionTraits& traits,
                               int arch);

// Every row that these traits can ever use on an arch, whatever the lengths: what prewarming needs.
std::vector<int> attention_rows(const AttentionTraits& traits, int arch);

// The sizes of a problem that decide about its tile. `keys`: the most that one query sees.
struct AttentionExtent {
  std::int64_t batch = 0, heads = 0, heads_kv = 0, len_q = 0, keys = 0;
};

// The row for one call, and how many CTAs share the keys of a tile.
struct AttentionChoice {
  int row = 0;
  int splits = 1;
};
// `sm_count` weighs waves of tiles. Never returns a row outside the list above, and never fails for
// traits that the problem checks let through. May only split a tile's keys where the caller gave a
// workspace.
AttentionChoice choose_attention(const AttentionTraits& traits, int arch,
                                 const AttentionExtent& extent, int sm_count, bool may_split);

}  // namespace kiln
