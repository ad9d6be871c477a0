// The text of driver errors.
#include "runtime/cuda/errors.h"

namespace kiln::runtime {

DeviceError driver_error(const DriverTable& driver, CUresult result, const char* call,
                         const std::string& detail) {
  // Both calls fail, and leave the pointer null, for a code newer than the driver.
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  std::string message = text != nullptr ? text : "the driver has no text for this code";
  if (!detail.empty()) message += "; " + detail;
  // cuInit() was called where the driver's functions come from, so that only a child can see this.
  if (result == CUDA_ERROR_NOT_INITIALIZED) {
    message +=
        "; this process was made by fork() from one that had used CUDA, which the driver "
        "does not support: start it with spawn instead (in Python "
        "multiprocessing.set_start_method(\"spawn\")), or use CUDA only after the fork";
  }
  return DeviceError(call, name != nullptr ? name : "CUresult " + std::to_string(int(result)),
                     message);
}

}  // namespace kiln::runtime
