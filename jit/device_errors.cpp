#include "jit/device_errors.h"

#include "kiln/error.h"

namespace kiln {

void throw_device_error(const runtime::DeviceError& error) {
  throw CudaError(error.what(), error.call(), error.code_name(), error.message());
}

}  // namespace kiln
