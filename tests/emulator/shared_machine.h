// A cluster with nothing to run, for tests that drive its memory and its shadow by hand.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

inline constexpr const char* kNothing = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry nothing(.param .u64 nothing_0, .param .u32 nothing_1)
{
  .shared .align 16 .b8 tile[4096];
  .local .align 8 .b8 depot[16];
  membar.cta;
  membar.gl;
  membar.sys;
  ret;
}
)";

// One cluster of blocks of four warps.
class SharedMachine {
 public:
  explicit SharedMachine(unsigned blocks = 1, bool checks = true)
      : module_(std::make_shared<const Module>(parse_ptx(kNothing))),
        globals_(*module_),
        program_(decode(module_, "nothing", globals_)),
        limits_(device_limits("sm_90a")) {
    program_.local_bytes = 16;
    launch_.program = &program_;
    launch_.shape.grid = {blocks, 1, 1};
    launch_.shape.cluster = {blocks, 1, 1};
    launch_.shape.block = {128, 1, 1};
    launch_.arguments = arguments_;
    launch_.memory = &memory;
    launch_.limits = &limits_;
    launch_.options.checks = checks;
    cluster_ = std::make_unique<Cluster>(launch_, 0);
  }

  Cluster& cluster() { return *cluster_; }
  Shadow& shadow() { return *cluster_->shadow(); }
  // A warp that stands at an instruction: 0 is line 8 of the text.
  Warp& warp(int index, std::uint32_t pc = 0, int block = 0) {
    Warp& found = cluster_->blocks()[static_cast<std::size_t>(block)]
                      .warps()[static_cast<std::size_t>(index)];
    found.group().pc = pc;
    return found;
  }

  AddressMap memory;

 private:
  std::shared_ptr<const Module> module_;
  GlobalVariables globals_;
  Program program_;
  DeviceLimits limits_;
  std::array<std::byte, 12> arguments_{};
  Launch launch_;
  std::unique_ptr<Cluster> cluster_;
};

// The fault that `f` raises, with its message; {Fault::trap, ""} when there is none.
template <class F>
RaisedFault fault_of(F f) {
  try {
    f();
  } catch (const RaisedFault& raised) {
    return raised;
  }
  return {Fault::trap, "", -1};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kiln::runtime::emulator
