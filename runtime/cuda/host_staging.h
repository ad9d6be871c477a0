// Host arrays on a CUDA device: the memory there, the pinned memory here through which they are
// copied, and a stream of their own. All of it is kept for later calls.
//
//        host array          pinned (two blocks a thread)           device
//   | .. | block | .. |  --threads-->  | block | block |  --stream-->  | .. |
//
// Copies from and to pageable memory by the driver take one thread through a small buffer of its
// own; several threads that fill pinned blocks by turns keep the bus busy.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

namespace kiln::runtime {

struct HostCopy {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::size_t bytes = 0;
};

// Used by one call at a time: everything but begin() needs the lock that begin() gave. Throws
// DeviceError.
class HostStaging {
 public:
  virtual ~HostStaging() = default;

  // Waits for the call before; from now on its device memory is free again.
  virtual std::unique_lock<std::mutex> begin() = 0;

  // Device memory until the next begin(), aligned to 256 bytes, its contents undefined.
  virtual std::byte* reserve(std::size_t bytes) = 0;

  // Copies to the device: the host memory may change when this returns, and what is launched on
  // stream() afterwards sees it.
  virtual void upload(std::span<const HostCopy> copies) = 0;

  // Waits for stream() and copies back.
  virtual void download(std::span<const HostCopy> copies) = 0;

  virtual void* stream() const = 0;
};

// That of a device; made at first need and kept until the process ends.
HostStaging& host_staging(int ordinal);

}  // namespace kiln::runtime
