#include "jit/op/launch.h"

#include <stdexcept>
#include <string>

#include "jit/op/arch.h"
#include "jit/op/device_errors.h"
#include "kiln/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/machine/emulated_device.h"

namespace kiln {

runtime::Device& device_of(int ordinal) {
  if (is_emulated(ordinal)) [[unlikely]] {
    if (runtime::Device* device = runtime::emulated_device_of(ordinal)) return *device;
  }
  try {
    return runtime::cuda_device(ordinal);
  } catch (const runtime::NoDeviceError& error) {
    throw CudaError(error.what());
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

int arch_of(const runtime::Device& device) {
  const runtime::DeviceInfo& info = device.info();
  return arch_index({info.compute_major, info.compute_minor});
}

unsigned grid_of(long long blocks) {
  if (blocks > 0x7fffffffLL) {
    throw std::invalid_argument("the problem needs " + std::to_string(blocks) +
                                " blocks; a launch takes at most 2^31 - 1: split the batch");
  }
  return static_cast<unsigned>(blocks);
}

void emulate(Problem& problem, double flops, runtime::Device& device, const Workspace& workspace) {
  admit_emulation(problem.op, flops, problem.recipe);
  emulate_recipe(problem.recipe, problem.texts, device, workspace);
}

}  // namespace kiln
