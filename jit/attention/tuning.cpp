#include "jit/attention/tuning.h"

#include <algorithm>
#include <cstdlib>

#include "jit/attention/config.h"
#include "jit/attention/family.h"

namespace kiln {
namespace {

bool is_attention_before(const TunedAttention& a, const TunedAttention& b) { return a.key < b.key; }

TunedAttention read_attention_entry(const TuningPart& entry, const TuningDevice& device) {
  TunedAttention tuned;
  TunedAttentionKey& key = tuned.key;
  key.device = device;
  key.dtype = static_cast<DType>(entry.choice("dtype", kHalfNames));
  key.mask = static_cast<Mask>(entry.choice("mask", kMaskNames, "none"));
  key.head_dim = entry.integer("head_dim", 1);
  key.head_dim_v = entry.integer_or("head_dim_v", 1, key.head_dim);
  const std::int64_t batch = entry.integer_or("batch", 1, 1);
  const int heads = entry.integer("heads", 1);
  key.heads = batch * heads;
  key.heads_kv = batch * entry.integer_or("heads_kv", 1, heads);
  tuned.len_q = entry.integer("len_q", 1);
  tuned.len_kv = entry.integer_or("len_kv", 1, tuned.len_q);
  if (key.mask == Mask::window) key.window_keys = entry.integer("keys", 1);
  const TuningPart config = entry.part("config");
  tuned.tile = {config.integer("block_q", 1), config.integer("block_kv", 1),
                config.integer("stages", 1), config.integer_or("splits", 1, 1)};
  return tuned;
}

std::unique_ptr<const TunedEntries> read_attention_entries(std::span<const TuningPart> parts,
                                                           const TuningDevice& device) {
  std::vector<TunedAttention> entries;
  for (const TuningPart& part : parts) entries.push_back(read_attention_entry(part, device));
  return std::make_unique<const AttentionTuning>(std::move(entries));
}

}  // namespace

const TuningReader kAttentionTuning = {.read = read_attention_entries};

AttentionTuning::AttentionTuning(std::vector<TunedAttention> entries)
    : entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(), is_attention_before);
}

const TunedAttention* AttentionTuning::find(const TunedAttentionKey& key, int len_q,
                                            int len_kv) const {
  const auto [first, last] = std::equal_range(entries_.begin(), entries_.end(),
                                              TunedAttention{key, 0, 0, {}}, is_attention_before);
  const TunedAttention* nearest = nullptr;
  std::int64_t least = 0;
  for (auto entry = first; entry != last; ++entry) {
    if (tuning_bucket(entry->len_q) != tuning_bucket(len_q) ||
        tuning_bucket(entry->len_kv) != tuning_bucket(len_kv)) {
      continue;
    }
    const std::int64_t distance = std::abs(std::int64_t{entry->len_q} - len_q) +
                                  std::abs(std::int64_t{entry->len_kv} - len_kv);
    const bool is_longer = nearest != nullptr && std::int64_t{entry->len_q} + entry->len_kv >
                                                     std::int64_t{nearest->len_q} + nearest->len_kv;
    if (nearest == nullptr || distance < least || (distance == least && is_longer)) {
      nearest = &*entry, least = distance;
    }
  }
  return nearest;
}

const TunedAttention* tuned_attention(const AttentionProblem& problem, const TuningDevice& device) {
  const TuningTable* table = tuning_table();
  if (table == nullptr) return nullptr;
  const auto* tuning = static_cast<const AttentionTuning*>(table->of(kAttention));
  const AttentionTraits& traits = problem.traits;
  if (tuning == nullptr || work_of(traits) != Work::light) return nullptr;
  const TunedAttentionKey key{.device = device,
                              .dtype = traits.q,
                              .mask = traits.mask,
                              .head_dim = traits.head_dim,
                              .head_dim_v = traits.head_dim_v,
                              .heads = std::int64_t{problem.batch} * problem.heads,
                              .heads_kv = std::int64_t{problem.batch} * problem.heads_kv,
                              .window_keys = traits.mask == Mask::window ? problem.keys : 0};
  return tuning->find(key, problem.len_q, problem.len_kv);
}

}  // namespace kiln
