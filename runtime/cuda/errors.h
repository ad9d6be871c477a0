// From a CUresult to a DeviceError with the driver's own name and text for it.
#pragma once

#include <string>

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace kiln::runtime {

// `detail`, where given, says what the call was about: a kernel's name, a shape.
DeviceError driver_error(const DriverTable& driver, CUresult result, const char* call,
                         const std::string& detail = {});

inline void check(const DriverTable& driver, CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw driver_error(driver, result, call);
}

}  // namespace kiln::runtime
