// Device memory for a call, from the caller.
#pragma once

#include <cstddef>

#include "kiln/export.h"

namespace KILN_PUBLIC kiln {

// Memory that a call needs beside its tensors, on their device: where a few output tiles have much
// to sum up, several blocks share each and meet there. Without a workspace such calls run unsplit,
// several times slower.
struct Workspace {
  // Called at most once in a call: `bytes` of memory, aligned to 16, not necessarily zeroed, that
  // stays until the call's work on its stream is done. Null = no workspace.
  void* (*allocate)(void* context, std::size_t bytes) = nullptr;
  void* context = nullptr;
};

}  // namespace KILN_PUBLIC kiln
