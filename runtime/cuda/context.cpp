// The context rule; see context.h.
#include "runtime/cuda/context.h"

#include "runtime/cuda/errors.h"

namespace kiln::runtime {

CUcontext PrimaryContext::get() {
  if (CUcontext ready = context_.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(mutex_);
  if (CUcontext ready = context_.load(std::memory_order_acquire)) return ready;
  CUcontext context = nullptr;
  check(driver_, driver_.cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
  context_.store(context, std::memory_order_release);
  return context;
}

ContextScope::ContextScope(PrimaryContext& primary, Which which) : driver_(primary.driver()) {
  check(driver_, driver_.cuCtxGetCurrent(&context_), "cuCtxGetCurrent");
  if (context_ != nullptr && context_ == primary.if_ready()) return;
  CUdevice device = -1;
  // A current context that cannot tell its device has been destroyed; it is not on this one.
  if (which == kCurrentOrPrimary && context_ != nullptr &&
      driver_.cuCtxGetDevice(&device) == CUDA_SUCCESS && device == primary.device()) {
    return;
  }
  context_ = primary.get();
  check(driver_, driver_.cuCtxPushCurrent(context_), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  // Fails only if the callee popped our context or the driver has shut down: nothing to undo then.
  CUcontext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent(&popped);
}

}  // namespace kiln::runtime
