#include "jit/compile/policy.h"

#include <atomic>

#include "jit/compile/settings.h"
#include "jit/op/family.h"
#include "jit/op/kernels.h"

namespace kiln {
namespace {

// -1 until set_jit or the first question: the settings are read then, not at load time.
std::atomic<int> g_mode{-1};
// NoCompile objects of this thread that are alive.
std::shared_ptr<std::atomic<int>>& open_of_this_thread() {
  thread_local auto open = std::make_shared<std::atomic<int>>(0);
  return open;
}

}  // namespace

JitMode jit_mode() {
  const int mode = g_mode.load(std::memory_order_relaxed);
  return mode < 0 ? settings().jit : static_cast<JitMode>(mode);
}

JitMode set_jit(JitMode mode) {
  const JitMode previous = jit_mode();
  g_mode.store(static_cast<int>(mode), std::memory_order_relaxed);
  return previous;
}

NoCompile::NoCompile() : open_(open_of_this_thread()) { ++*open_; }
NoCompile::~NoCompile() { --*open_; }

bool may_compile() { return jit_mode() != JitMode::off && *open_of_this_thread() == 0; }

void require_compiling(const Specialization& spec, const UserTexts& texts,
                       const KernelSource& source) {
  if (may_compile()) return;
  const std::string text = spec_text(spec, texts);
  throw CompileDisabled(source.what + " for " + source.arch +
                            " is not in the cache and compiling is off; prewarm it with kiln "
                            "prewarm --arch " +
                            source.arch + " --spec FILE, where FILE holds [" + text + "]",
                        text);
}

void refuse_capture(const Specialization& spec, const UserTexts& texts) {
  const std::string text = spec_text(spec, texts);
  throw CompileDisabled(describe(spec, texts) +
                            " is not loaded and the stream is being captured into a CUDA graph, "
                            "where nothing can be loaded; run the call once before the capture or "
                            "call kiln.preload(" +
                            text + ")",
                        text);
}

}  // namespace kiln
