// Workspace: device memory that the caller provides for a call.
#pragma once

#include <cstddef>

#include "kiln/export.h"

namespace KILN_PUBLIC kiln {

// Some calls need memory besides their tensors, on the same device: if there are few output tiles
// with long sums, several blocks share each tile and exchange their parts through it. Without a
// workspace such calls run unsplit and are several times slower. Norms of very wide rows are
// refused without one, see kiln/norm.h. Long prefills over a quantised cache, or one of small
// pages, keep up to 512 MiB of copied keys there, see docs/serving.md.
struct Workspace {
  // Is called at most once in a call. It returns `bytes` of memory, aligned to 16, not necessarily
  // zeroed, which must stay valid until the call's work on its stream is done. Null: no workspace.
  void* (*allocate)(void* context, std::size_t bytes) = nullptr;
  void* context = nullptr;
};

}  // namespace KILN_PUBLIC kiln
