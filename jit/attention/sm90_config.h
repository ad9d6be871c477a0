// The closed table of the sm_90a kernels' tiles, and which of its rows serve a problem. A row's
// reason stands beside it in sm90_table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/attention/config.h"
#include "jit/op/yields.h"
#include "templates/attention/params.h"

namespace kiln {

// Whether a row serves keys that lie in pages.
enum class Pages : std::uint8_t { any, none, only };

// Which calls with blocks, such as a BlockMask's, a row serves whatever keys they have: those whose
// masks read tensors within blocks, or all.
enum class Blocks : std::uint8_t { none, read, any };

struct AttentionSm90Config {
  int min_dim, max_dim;   // serves head dims of q and k in this range
  int max_dim_v;          // and of v up to this
  int block_q, block_kv;  // block_q: 64 for each math warpgroup
  int stages;             // tiles of K and of V in shared memory
  int q_stages;           // 2: Q of the next tile is copied while this one is computed
  bool staged_output;     // through shared memory of its own; else from registers
  bool turns;             // warpgroups issue their products in turns
  bool splits = false;    // two or more CTAs share the keys of a query tile
  bool grouped = false;   // see groups_heads()
  // Only where sequences have lengths of their own: one of several rows that the cost decides
  // among.
  bool by_cost = false;
  // For quantised caches: a warpgroup more widens the elements, or two warps transpose values.
  AttentionFactors factors = AttentionFactors::halves;
  Work work;  // the heaviest that it serves
  Masks masks = Masks::any;
  Pages pages = Pages::any;
  bool windows = false;  // only for many queries that see fewer keys than there are
  bool reads = false;    // and where only_masks_read()
  Blocks blocks = Blocks::none;
  int max_keys = 0;              // for calls in which a query sees at most so many; 0: any
  int max_keys_read = max_keys;  // the same where only_masks_read()
  int min_keys = 0;              // for calls in which a query may see so many; 0: any
  int min_window = 0;            // for windows in which a query may see so many
  // Not for calls whose queries fill tiles of so many rows to 95 %; 0: for these too.
  int unless_fills = 0;
  // Not for more than 512 queries that tiles of so many rows pad no more than this row's do; 0: for
  // these too. It says nothing of windows, documents and sequences with lengths of their own.
  int unless_fits = 0;
  int speed = 100;  // with many keys, in percent of the fastest row's
  std::string_view reason;
};

std::span<const AttentionSm90Config> attention_sm90_configs();
int shared_bytes(const AttentionSm90Config& config, const AttentionTraits& traits);
// Whether a row's kernel passes outputs through shared memory: the copy engine would write rows
// behind a sequence that has a length of its own.
inline bool stages_output(const AttentionSm90Config& config, const AttentionTraits& traits) {
  return config.staged_output && traits.storage == Storage::dense;
}
// Whether tiles of sequences that have lengths of their own may have rows of all heads that share a
// KV head. With splits they always may: a kernel without such rows would save 1 % at most.
inline bool groups_heads(const AttentionSm90Config& config) {
  return config.grouped || config.splits;
}
// Whether logits grow by the same from key to key, which costs hardly anything: see
// templates/attention/sm90/tilt.cuh. Nothing else may change them, or the scale of scores.
bool tilts(const AttentionTraits& traits);
// How heavy a variant's code is for warps that math alone fills: work_of() knows no more than that
// it is a user's.
Work work_for_sm90(AttentionTraits traits);
// Whether nothing but a variant's mask reads tensors at keys: in a branch of its own, for partial
// tiles.
bool only_masks_read(const AttentionTraits& traits);
// A row admits a call by these.
struct AttentionLengths {
  std::int64_t queries, keys;  // keys: that a query sees at most
  bool is_narrow;              // of more than it sees
};
// Whether the row's kernel is meant for so many keys.
bool serves_keys(const AttentionSm90Config& config, const AttentionLengths& lengths);
// The most keys that a query may see in calls that a row admits; 0: any.
int most_keys(const AttentionSm90Config& config, const AttentionTraits& traits);
bool admits(const AttentionSm90Config& config, const AttentionTraits& traits,
            const AttentionLengths& lengths);
int thread_count(const AttentionSm90Config& config);
std::string tile_name(const AttentionSm90Config& config);  // "128x128x2 grouped", "128x128x2 split"

// Says where the warps of such kernels yield.
std::span<const YieldRule> yields_for_sm90(const AttentionTraits& traits);

// Why no row serves such calls, in one sentence; "" where one does.
std::string why_not_attention_sm90(const AttentionTraits& traits, int arch);
// Every row that calls of these traits can use.
std::vector<int> attention_sm90_rows(const AttentionTraits& traits, int arch);

}  // namespace kiln
