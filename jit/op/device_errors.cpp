#include "jit/op/device_errors.h"

#include "kiln/error.h"
#include "runtime/emulator/machine/faults.h"

namespace kiln {

void throw_device_error(const runtime::DeviceError& error) {
  const auto* fault = dynamic_cast<const runtime::emulator::EmulatorError*>(&error);
  if (fault == nullptr) {
    throw CudaError(error.what(), error.call(), error.code_name(), error.message());
  }
  const runtime::emulator::Site& site = fault->site();
  throw EmulatorError(
      error.what(), {std::string(runtime::emulator::name(fault->fault())), site.kernel, site.block,
                     site.warp, site.lane, site.ptx_line, site.instruction, site.source});
}

}  // namespace kiln
