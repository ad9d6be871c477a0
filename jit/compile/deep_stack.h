// NVRTC parses and optimises by recursion: on a thread with a small stack, as servers make them, it
// would overflow.
#pragma once

#include <functional>

namespace kiln {

// Runs `work` on the calling thread, or on one of its own where less than 1 MiB of stack is left.
// What `work` throws passes through. Where no thread can be had, `work` runs here all the same.
void on_deep_stack(const std::function<void()>& work);

}  // namespace kiln
