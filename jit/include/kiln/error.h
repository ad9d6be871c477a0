// The errors of Kiln. Bad arguments are std::invalid_argument (TypeError below for a wrong type);
// everything else derives from kiln::Error. Each what() is a complete message.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kiln/export.h"

namespace KILN_PUBLIC kiln {

// A wrong dtype or kind of tensor; Python's TypeError.
class TypeError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// NVRTC refused a source, or no NVRTC could be loaded. what() ends with NVRTC's log.
class CompileError : public Error {
 public:
  CompileError(const std::string& message, std::string log, std::string path = {})
      : Error(message), log_(std::move(log)), path_(std::move(path)) {}
  const std::string& log() const { return log_; }
  // The path of the source: a variant's template file, or the virtual name of the source that Kiln
  // generated. It is empty if nothing was compiled.
  const std::string& path() const { return path_; }

 private:
  std::string log_, path_;
};

// A CUDA driver call failed, or no device can be used. what() is the complete message. The parts
// are for programs, and are empty if no call was made.
class CudaError : public Error {
 public:
  explicit CudaError(const std::string& what) : Error(what), message_(what) {}
  CudaError(const std::string& what, std::string call, std::string name, std::string message)
      : Error(what), call_(std::move(call)), name_(std::move(name)), message_(std::move(message)) {}
  const std::string& call() const { return call_; }        // "cuLaunchKernelEx"
  const std::string& name() const { return name_; }        // "CUDA_ERROR_OUT_OF_MEMORY"
  const std::string& message() const { return message_; }  // the driver's message and its context

 private:
  std::string call_, name_, message_;
};

// Where a kernel went wrong on the emulated device; -1, 0 and empty if that is unknown.
struct EmulatorFault {
  std::string fault;  // "out-of-bounds access"
  std::string kernel;
  std::array<int, 3> block{-1, -1, -1};
  int warp = -1, lane = -1;
  std::uint32_t ptx_line = 0;
  std::string instruction;
  std::string source;  // the template's file and line, where the PTX has line information
};

// The emulated device refused a kernel, or stopped it at a fault. what() is the whole report.
class EmulatorError : public Error {
 public:
  EmulatorError(const std::string& report, EmulatorFault fault)
      : Error(report), fault_(std::move(fault)) {}
  const EmulatorFault& fault() const { return fault_; }

 private:
  EmulatorFault fault_;
};

// A kernel was missing from the cache while compiling was off (KILN_JIT=off, NoCompile) or a stream
// was being captured. spec() is in the form that `kiln prewarm --spec` takes: an object, or an
// array if a call of several launches lacks more than one kernel.
class CompileDisabled : public Error {
 public:
  CompileDisabled(const std::string& message, std::string spec)
      : Error(message), spec_(std::move(spec)) {}
  const std::string& spec() const { return spec_; }

 private:
  std::string spec_;
};

}  // namespace KILN_PUBLIC kiln
