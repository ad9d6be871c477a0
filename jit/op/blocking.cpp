#include "jit/op/blocking.h"

#include "kiln/control.h"

namespace kiln {
namespace {
BlockingHooks g_hooks;  // set once, when the binding is imported
}

void set_blocking_hooks(BlockingHooks hooks) { g_hooks = hooks; }

BlockingScope::BlockingScope() : token_(g_hooks.enter ? g_hooks.enter() : nullptr) {}
BlockingScope::~BlockingScope() {
  if (g_hooks.leave) g_hooks.leave(token_);
}

}  // namespace kiln
