// A device's failure as the error that users see.
#pragma once

#include "runtime/device.h"

namespace kiln {

// Throws EmulatorError for a fault that the emulated device found, else CudaError with the failed
// call, its code's name and the driver's words.
[[noreturn]] void throw_device_error(const runtime::DeviceError& error);

}  // namespace kiln
