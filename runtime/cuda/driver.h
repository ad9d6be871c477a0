// The CUDA driver API as one table of function pointers, filled from libcuda.so.1 at first use.
// Nothing links libcuda; cuda.h gives types only. Everything in runtime/cuda calls through this.
#pragma once

#include <cuda.h>

#include "runtime/cuda/cuda_device.h"

namespace kiln::runtime {

// cuda.h maps some of these names to their _v2 form; cuGetProcAddress wants the plain name and
// returns the form of kMinimumDriver, which is the one that cuda.h declares.
#define KILN_DRIVER_FUNCTIONS(X) \
  X(cuCtxGetCurrent)             \
  X(cuCtxGetDevice)              \
  X(cuCtxPopCurrent)             \
  X(cuCtxPushCurrent)            \
  X(cuDeviceGet)                 \
  X(cuDeviceGetAttribute)        \
  X(cuDeviceGetCount)            \
  X(cuDeviceGetName)             \
  X(cuDevicePrimaryCtxRetain)    \
  X(cuDeviceTotalMem)            \
  X(cuEventCreate)               \
  X(cuEventRecord)               \
  X(cuEventSynchronize)          \
  X(cuFuncLoad)                  \
  X(cuGetErrorName)              \
  X(cuGetErrorString)            \
  X(cuInit)                      \
  X(cuKernelGetFunction)         \
  X(cuKernelSetAttribute)        \
  X(cuLaunchKernelEx)            \
  X(cuLibraryGetKernel)          \
  X(cuLibraryLoadData)           \
  X(cuLibraryUnload)             \
  X(cuMemAlloc)                  \
  X(cuMemFree)                   \
  X(cuMemHostAlloc)              \
  X(cuMemcpyDtoHAsync)           \
  X(cuMemcpyHtoDAsync)           \
  X(cuPointerGetAttribute)       \
  X(cuStreamCreate)              \
  X(cuStreamIsCapturing)         \
  X(cuStreamSynchronize)         \
  X(cuTensorMapEncodeTiled)

struct DriverTable {
#define KILN_DRIVER_FIELD(name) decltype(&::name) name = nullptr;
  KILN_DRIVER_FUNCTIONS(KILN_DRIVER_FIELD)
#undef KILN_DRIVER_FIELD
};

// The oldest driver API that has every function above (cuFuncLoad is the youngest).
inline constexpr int kMinimumDriver = 12040;

// The table of an initialised driver with at least one device. Throws NoDeviceError.
// Thread-safe; the table lives until the process ends.
const DriverTable& driver();

// The same, or null if driver() would throw.
const DriverTable* driver_if_usable();

// Tests only: forgets the driver and every device, and opens `path` at the next use. A null path
// is the system's driver again. No call into a device may be running.
void set_driver_library_for_testing(const char* path);

// The part of the function above that concerns only the table.
void reset_driver(const char* path);

}  // namespace kiln::runtime
