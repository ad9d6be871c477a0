// How a launch is emulated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::runtime::emulator {

// When asynchronous work (cp.async, bulk copies, wgmma) is done.
enum class Schedule : std::uint8_t {
  eager,  // at issue
  late    // at the last legal moment: reads of sources and writes of results both
};

struct Options {
  Schedule schedule = Schedule::late;
  // 0: warps and blocks take turns in order. Else they are shuffled, the same way for one seed.
  std::uint64_t seed = 0;
  // Shared memory is watched byte by byte: races, uninitialised reads, missing proxy fences.
  // Bounds, alignment, deadlocks and budgets are always checked.
  bool checks = true;
  std::uint64_t step_limit = 0;  // warp instructions of one block; 0 = none
  int workers = 0;               // host threads; 0 = one per core
  int sm_count = 0;              // of the device; 0 = as device_limits() has it
  // Print the instructions of one thread to stderr: block and thread index within it; -1 = no.
  std::int64_t trace_block = -1;
  int trace_thread = -1;
};

// "late,seed=3,checks=off,workers=1,steps=1000000,multiprocessors=78" over `base`. Throws
// std::invalid_argument.
Options parse_options(std::string_view text, const Options& base = {});

// Limits of the modelled device.
struct DeviceLimits {
  int major = 9, minor = 0;
  bool suffix_a = true;  // sm_90a: wgmma, setmaxnreg
  int sm_count = 132;
  int warps_per_sm = 64;
  int blocks_per_sm = 32;
  std::uint32_t registers_per_sm = 65536;
  std::uint32_t shared_per_block = 227 * 1024;  // opt-in limit, without the system's reserve
  std::uint32_t shared_per_sm = 228 * 1024;
  std::string name;
};
// "sm_90a", "sm_80", "90". `sm_count`: 0 = as many multiprocessors as the usual product of that
// generation has. Throws std::invalid_argument listing what is modelled.
DeviceLimits device_limits(std::string_view arch, int sm_count = 0);

}  // namespace kiln::runtime::emulator
