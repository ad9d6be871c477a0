// Which device calls on host memory run on: KILN_DEVICE for the process, set_device for a thread.
// A device tensor's own device always wins, so that nothing of this costs a call on a GPU anything.
#pragma once

#include <string>
#include <string_view>

#include "runtime/device.h"
#include "runtime/emulator/machine/options.h"

namespace kiln {

struct DeviceChoice {
  enum class Kind : std::uint8_t { automatic, cuda, emulator };
  Kind kind = Kind::automatic;
  int cuda_ordinal = 0;
  std::string arch = "sm_90a";  // of the emulated device
  runtime::emulator::Options options;
  std::string text = "auto";  // as it was given
};

// "auto", "cuda", "cuda:1", "emulator", "emulator:sm_90a,late,seed=3,checks=off"; empty = auto.
// Throws std::invalid_argument.
DeviceChoice parse_device_choice(std::string_view text);
// The calling thread's.
const DeviceChoice& device_choice();

// Whether a call whose tensors are all in host memory runs on the emulated device: when it was
// chosen, and under `auto` where there is no driver. Throws CudaError where `auto` finds a driver
// that fails: that is never papered over.
bool emulates_host_tensors();
// The CUDA device that host arrays are copied to where they are not emulated: the chosen one, else
// the calling thread's current one, else the first.
int host_tensor_ordinal();
// The emulated device of the thread's choice.
runtime::Device& chosen_emulator();

// Emulated devices have ordinals above every CUDA device's.
inline constexpr int kFirstEmulatedOrdinal = 1 << 16;
inline bool is_emulated(int ordinal) { return ordinal >= kFirstEmulatedOrdinal; }

}  // namespace kiln
