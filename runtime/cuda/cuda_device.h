// The CUDA kind of device. Opens libcuda.so.1 with dlopen at first use; nothing links it.
#pragma once

#include <memory>
#include <string>

#include "runtime/device.h"

namespace kiln::runtime {

struct CudaStatus {
  bool driver_found = false;  // libcuda.so.1 could be opened
  int driver_version = 0;     // 13000 = 13.0
  int device_count = 0;
  std::string driver_path;
  std::string problem;  // empty when devices can be used; else one sentence with a cure
};
// Never throws. The first call opens the driver and initialises it.
const CudaStatus& cuda_status();

// The device of that ordinal; created once, lives until the process ends. Throws NoDeviceError.
Device& cuda_device(int ordinal);

// Ordinal of the device that holds a device pointer, or -1 when it is not device memory.
int cuda_ordinal_of_pointer(const void* pointer);

// Ordinal of the calling thread's current context, or -1 when there is none.
int cuda_current_ordinal();

}  // namespace kiln::runtime
