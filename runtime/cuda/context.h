// Which CUDA context a call runs in: the caller's current one if it is on the device, else the
// device's primary one, which is put back afterwards.
#pragma once

#include <atomic>
#include <mutex>

#include "runtime/cuda/driver.h"

namespace kiln::runtime {

// The primary context of one device, retained at first need (creating it takes a while and some
// hundred MB of device memory) and then until the process ends. Thread-safe.
class PrimaryContext {
 public:
  PrimaryContext(const DriverTable& driver, CUdevice device) : driver_(driver), device_(device) {}

  CUcontext get();  // Throws DeviceError.
  CUcontext if_ready() const { return context_.load(std::memory_order_acquire); }  // or null
  const DriverTable& driver() const { return driver_; }
  CUdevice device() const { return device_; }

 private:
  const DriverTable& driver_;
  const CUdevice device_;
  std::mutex mutex_;
  std::atomic<CUcontext> context_{nullptr};
};

// Makes a context of the device current until the end of the scope.
class ContextScope {
 public:
  enum Which { kCurrentOrPrimary, kPrimary };
  explicit ContextScope(PrimaryContext& primary, Which which = kCurrentOrPrimary);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  CUcontext context() const { return context_; }

 private:
  const DriverTable& driver_;
  CUcontext context_ = nullptr;
  bool pushed_ = false;
};

}  // namespace kiln::runtime
