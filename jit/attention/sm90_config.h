// The closed table of the sm_90a kernels' tiles, and which of its rows serve a problem. A row's
// reason stands beside it in sm90_table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/attention/config.h"

namespace kiln {

struct AttentionSm90Config {
  int min_dim, max_dim;   // serves head dims of q and k in this range
  int max_dim_v;          // and of v up to this
  int block_q, block_kv;  // block_q: 64 for each math warpgroup
  int stages;             // tiles of K and of V in shared memory
  int q_stages;           // 2: Q of the next tile is copied while this one is computed
  bool staged_output;     // through shared memory of its own; else from registers
  bool turns;             // warpgroups issue their products in turns
  Work work;              // the heaviest that it serves
  Masks masks = Masks::any;
  int max_keys = 0;  // for calls in which a query sees at most so many; 0: any
  std::string_view reason;
};

std::span<const AttentionSm90Config> attention_sm90_configs();
int shared_bytes(const AttentionSm90Config& config, const AttentionTraits& traits);
std::string tile_name(const AttentionSm90Config& config);  // "128x128x2"

// Why no row serves such calls, in one sentence; "" where one does.
std::string why_not_attention_sm90(const AttentionTraits& traits, int arch);
// Every row that calls of these traits can use.
std::vector<int> attention_sm90_rows(const AttentionTraits& traits, int arch);

// How many heads' query tiles are dealt out together: see templates/attention/sm90/schedule.cuh.
// `tiles`: of one head.
int heads_dealt_together(std::int64_t heads, std::int64_t tiles, int sm_count);

}  // namespace kiln
