// Attention's entries of the measured table, docs/tuning.md: which row of the sm_90a table was the
// fastest for a problem, and with how many splits. A call asks them before the built-in choice.
#pragma once

#include <compare>
#include <vector>

#include "jit/attention/problem.h"
#include "jit/op/tuning.h"

namespace kiln {

// An entry serves a problem with the same key and with lengths near its own.
struct TunedAttentionKey {
  TuningDevice device = {};
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  int head_dim = 0, head_dim_v = 0;
  std::int64_t heads = 0, heads_kv = 0;  // of all batch entries
  int window_keys = 0;                   // the most that a query sees in a window; 0: no window

  auto operator<=>(const TunedAttentionKey&) const = default;
};

struct AttentionTile {
  int block_q = 0, block_kv = 0, stages = 0;
  int splits = 1;  // CTAs that share the keys of a query tile
};

struct TunedAttention {
  TunedAttentionKey key;
  int len_q = 0, len_kv = 0;
  AttentionTile tile;
};

class AttentionTuning : public TunedEntries {
 public:
  explicit AttentionTuning(std::vector<TunedAttention> entries);

  // Returns the entry with this key whose lengths differ least in sum, among those whose lengths
  // round up to the same powers of two; the longer of two that are equally near; null if there is
  // none. It allocates nothing.
  const TunedAttention* find(const TunedAttentionKey& key, int len_q, int len_kv) const;

 private:
  std::vector<TunedAttention> entries_;  // by key
};

extern const TuningReader kAttentionTuning;

// Returns the entry of the process's table for this problem. It is null where there is none, and
// for calls with code at every logit, because entries are measured without such code.
const TunedAttention* tuned_attention(const AttentionProblem& problem, const TuningDevice& device);

}  // namespace kiln
