// Keeping one folder small: which entries go, in which order, and which are left alone.
#pragma once

#include "cache/layer.h"

namespace kiln::cache {

// Adds what only the side file tells: whether the entry is pinned, and what it is.
void add_side_file(const Layer& layer, EntryInfo& info);

// Removes from `scan`'s entries, least recently used first, what `options` allow. Pinned entries
// stay, but for those that `expired` names; `fresh`, just written, stays in any case. What is gone,
// by us or by others, no longer counts in `scan`.
Pruned prune_layer(const Layer& layer, Layer::Scan& scan, const PruneOptions& options,
                   const Key* fresh = nullptr);

}  // namespace kiln::cache
