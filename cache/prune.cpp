#include "cache/prune.h"

#include <algorithm>

namespace kiln::cache {
namespace {

class Pruning {
 public:
  Pruning(const Layer& layer, Layer::Scan& scan, const PruneOptions& options)
      : layer_(layer), scan_(scan), options_(options) {}

  // Every entry that `expired` names, pinned or not.
  void drop_expired() {
    std::vector<EntryInfo> kept;
    for (EntryInfo& entry : scan_.entries) {
      add_side_file(layer_, entry);
      if (options_.expired(entry)) {
        drop(std::move(entry));
      } else {
        kept.push_back(std::move(entry));
      }
    }
    scan_.entries = std::move(kept);
  }

  // The least recently used, until the limits of age and size hold.
  void shrink(const Key* fresh) {
    std::sort(scan_.entries.begin(), scan_.entries.end(),
              [](const EntryInfo& a, const EntryInfo& b) { return a.last_used < b.last_used; });
    for (EntryInfo& entry : scan_.entries) {
      const bool is_stale = entry.last_used < options_.unused_since;
      if (!is_stale && scan_.bytes <= options_.max_bytes) break;
      if (fresh && entry.key == *fresh) continue;
      add_side_file(layer_, entry);
      if (entry.pinned) {
        ++pruned_.kept_pinned;
      } else {
        drop(std::move(entry));
      }
    }
  }

  Pruned take() { return std::move(pruned_); }

 private:
  void drop(EntryInfo entry) {
    const Layer::Removal removal =
        options_.dry_run ? Layer::Removal::kRemoved : layer_.remove(entry);
    if (removal == Layer::Removal::kFailed) {
      ++pruned_.failed;
      pruned_.problem = "cannot remove entries from " + layer_.root().string() +
                        "; make the folder writable for this user";
    }
    pruned_.in_use += removal == Layer::Removal::kInUse;
    const bool removed = removal == Layer::Removal::kRemoved;
    if (removed || removal == Layer::Removal::kGone) scan_.bytes -= entry.bytes;
    if (removed) pruned_.removed.push_back(std::move(entry));
  }

  const Layer& layer_;
  Layer::Scan& scan_;
  const PruneOptions& options_;
  Pruned pruned_;
};

}  // namespace

void add_side_file(const Layer& layer, EntryInfo& info) {
  auto side = read_side_file(layer.paths(info.key), info.key, layer.trust());
  if (!side.value) return;
  info.pinned = side.value->pinned;
  info.description = std::move(side.value->description);
}

Pruned prune_layer(const Layer& layer, Layer::Scan& scan, const PruneOptions& options,
                   const Key* fresh) {
  Pruning pruning(layer, scan, options);
  if (options.expired) pruning.drop_expired();
  pruning.shrink(fresh);
  return pruning.take();
}

}  // namespace kiln::cache
