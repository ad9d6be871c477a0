#include "jit/op/emulation.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "jit/op/device_choice.h"
#include "jit/op/family.h"
#include "jit/op/log.h"
#include "kiln/error.h"
#include "runtime/emulator/machine/emulated_device.h"

namespace kiln {
namespace {

// How much one core computes in a second, and how many lane instructions a thread executes outside
// of matrix products (addresses, softmax, epilogue). The estimate is right within a small factor.
constexpr double kFlopsPerCore = 2e9;
constexpr double kLaneInstructionsPerCore = 60e6;
constexpr double kLaneInstructionsPerThread = 1000;
constexpr double kPatience = 60;  // seconds

double seconds_of(double flops, const Recipe& recipe) {
  double threads = 0;
  for (const Step& step : recipe.steps()) {
    threads += static_cast<double>(step.blocks) * step.spec.kernel().footprint(step.spec).threads;
  }
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  return (flops / kFlopsPerCore + threads * kLaneInstructionsPerThread / kLaneInstructionsPerCore) /
         cores;
}

void tell_once() {
  static std::atomic_flag told;
  if (told.test_and_set()) return;
  log(LogLevel::warning,
      "there is no CUDA driver here: calls on host arrays run on the emulated device (" +
          device_choice().arch +
          "), which checks kernels and is slow; set KILN_DEVICE=emulator to choose it without this "
          "notice");
}

}  // namespace

void admit_emulation(const char* op, double flops, const Recipe& recipe) {
  if (device_choice().kind != DeviceChoice::Kind::automatic) return;
  const double seconds = seconds_of(flops, recipe);
  if (seconds > kPatience) {
    char minutes[32];
    std::snprintf(minutes, sizeof minutes, "%.0f", std::max(1.0, seconds / 60));
    throw Error(std::string(op) + ": this call would take about " + minutes +
                (minutes == std::string("1") ? " minute" : " minutes") +
                " on the emulated device, which is used because there is no CUDA driver here; to "
                "run it nevertheless, choose that device with KILN_DEVICE=emulator or "
                "kiln.device(\"emulator\")");
  }
  tell_once();
}

EmulationScope::EmulationScope() { runtime::set_emulator_options(device_choice().options); }

}  // namespace kiln
