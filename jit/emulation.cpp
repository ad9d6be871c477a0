#include "jit/emulation.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "jit/config.h"
#include "jit/device_choice.h"
#include "jit/kernel_source.h"
#include "jit/log.h"
#include "kiln/error.h"
#include "runtime/emulator/machine/emulated_device.h"

namespace kiln {
namespace {

// What one core does in a second, and the lane-instructions of a thread outside matrix products:
// addresses, softmax, epilogue. Meant to be right within a small factor.
constexpr double kFlopsPerCore = 2e9;
constexpr double kLaneInstructionsPerCore = 60e6;
constexpr double kLaneInstructionsPerThread = 1000;
constexpr double kPatience = 60;  // seconds

double seconds_of(double flops, const LaunchChoice& choice) {
  const double threads = static_cast<double>(choice.blocks) * threads_of(choice.spec);
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  return (flops / kFlopsPerCore + threads * kLaneInstructionsPerThread / kLaneInstructionsPerCore) /
         cores;
}

void tell_once() {
  static std::atomic_flag told;
  if (told.test_and_set()) return;
  log(LogLevel::warning,
      "no CUDA driver here: calls on host arrays run on the emulated device (" +
          device_choice().arch +
          "), which checks kernels and is slow; KILN_DEVICE=emulator chooses it without this "
          "notice");
}

void admit(const char* op, double flops, const LaunchChoice& choice) {
  if (device_choice().kind != DeviceChoice::Kind::automatic) return;
  const double seconds = seconds_of(flops, choice);
  if (seconds > kPatience) {
    char minutes[32];
    std::snprintf(minutes, sizeof minutes, "%.0f", std::max(1.0, seconds / 60));
    throw Error(std::string(op) + ": this call would take about " + minutes +
                " minute(s) on the emulated device, which stands in because there is no CUDA "
                "driver here; to wait for it, ask for it with KILN_DEVICE=emulator or "
                "kiln.device(\"emulator\")");
  }
  tell_once();
}

}  // namespace

void admit_emulation(const AttentionProblem& problem, const LaunchChoice& choice) {
  const AttentionTraits& traits = problem.traits;
  const double pairs =
      static_cast<double>(problem.batch) * problem.heads * problem.len_q * problem.len_kv;
  const double visible = traits.mask == Mask::causal ? 0.5 : 1.0;
  admit("flash_attention", 2 * pairs * visible * (traits.head_dim + traits.head_dim_v), choice);
}

void admit_emulation(const GemmProblem& problem, const LaunchChoice& choice) {
  admit("gemm", 2.0 * problem.m * problem.n * problem.k * problem.batch, choice);
}

EmulationScope::EmulationScope() { runtime::set_emulator_options(device_choice().options); }

}  // namespace kiln
