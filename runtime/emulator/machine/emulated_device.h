// The emulated kind of device: runs the PTX that NVRTC produced on the host's cores.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/device.h"
#include "runtime/emulator/machine/options.h"

namespace kiln::runtime {

// The emulated device of an architecture ("sm_90a") with so many multiprocessors, see
// device_limits(); created once, lives until the process ends. Its ordinal is unlike any CUDA
// device's. Throws std::invalid_argument listing what is modelled.
Device& emulated_device(std::string_view arch, int sm_count = 0);
// The device of such an ordinal, or null.
Device* emulated_device_of(int ordinal);

// How the calling thread's launches are emulated.
const emulator::Options& emulator_options();
void set_emulator_options(const emulator::Options& options);

// Called about ten times a second by threads that load a module or launch a kernel; what it throws
// ends that. A language binding looks for Ctrl-C there. Set once, before the first launch.
void set_emulator_poll(void (*poll)());

namespace emulator {

// Runs any kernel: what `kiln emulate` does. `arguments`: the whole parameter block. Global memory
// is what `spans` and the module's own variables say. Throws EmulatorError.
struct Run {
  std::string_view ptx;
  std::string_view entry;  // empty: the only one
  std::string_view arch;   // empty: the module's .target
  LaunchShape shape;
  std::span<const std::byte> arguments;
  std::span<const MemorySpan> spans;
  Options options;
};
void run(const Run& run);

}  // namespace emulator
}  // namespace kiln::runtime
