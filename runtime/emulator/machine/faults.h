// What can go wrong in a module, in a launch and in a running kernel, told to its author.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/device.h"

namespace kiln::runtime::emulator {

enum class Fault : std::uint8_t {
  bad_ptx,              // the text is no sound PTX, or truncated
  unknown_instruction,  // sound, but not modelled
  bad_launch,           // wrong parameters, shape, too much shared memory
  out_of_bounds,        // an access outside every allocation, or of the wrong space
  misaligned,
  uninitialized_shared,  // a read of shared memory that nobody has written
  shared_race,           // two accesses, one a write, with no barrier between them
  unfenced_proxy,        // a generic write that an asynchronous unit reads with no proxy fence
  in_flight,             // wgmma's registers, or a bulk copy's memory, touched before its wait
  unfinished_launch,     // memory of an earlier launch, touched before griddepcontrol.wait
  deadlock,              // nobody can go on: which barrier, which phase, who is missing
  register_budget,       // setmaxnreg that could never be granted
  tensor_map,            // a tensor map or box that the hardware refuses or misreads
  barrier_misuse,        // arrival counts, invalid mbarriers, ids beyond 15
  divergence,            // an .aligned instruction that part of its warp never reaches
  step_limit,
  trap  // the kernel executed trap or a failed assertion
};
std::string_view name(Fault fault);  // "out-of-bounds access"

// Where: any part may be unknown (-1, empty).
struct Site {
  std::string kernel;
  std::array<int, 3> block{-1, -1, -1};
  int warp = -1, lane = -1;
  std::uint32_t ptx_line = 0;
  std::string instruction;  // as written, cut to one line
  std::string source;       // the template's file and line, where .loc tells them
};

// what() is the whole report: the fault, the message, the site.
class EmulatorError : public DeviceError {
 public:
  EmulatorError(Fault fault, const std::string& message, Site site = {});
  const char* what() const noexcept override { return report_.c_str(); }
  Fault fault() const { return fault_; }
  const Site& site() const { return site_; }

 private:
  Fault fault_;
  Site site_;
  std::string report_;
};

// Thrown where the site is not known yet; the executor adds it. `lane` = -1: the whole warp.
struct RaisedFault {
  Fault fault;
  std::string message;
  int lane = -1;
};
[[noreturn]] inline void raise(Fault fault, std::string message, int lane = -1) {
  throw RaisedFault{fault, std::move(message), lane};
}

// A fault of the text itself.
[[noreturn]] void raise_ptx(std::uint32_t line, const std::string& message);

std::string hex(std::uint64_t value);  // "0x1f00"

}  // namespace kiln::runtime::emulator
