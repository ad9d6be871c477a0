// NVRTC, opened with dlopen: the search for it, and the functions that the compiler calls.
#pragma once

#include <nvrtc.h>

#include <memory>
#include <string>

#include "jit/compile/compiler.h"

namespace kiln {

#define KILN_NVRTC_FUNCTIONS(X) \
  X(nvrtcCompileProgram)        \
  X(nvrtcCreateProgram)         \
  X(nvrtcDestroyProgram)        \
  X(nvrtcGetCUBIN)              \
  X(nvrtcGetCUBINSize)          \
  X(nvrtcGetErrorString)        \
  X(nvrtcGetNumSupportedArchs)  \
  X(nvrtcGetPTX)                \
  X(nvrtcGetPTXSize)            \
  X(nvrtcGetProgramLog)         \
  X(nvrtcGetProgramLogSize)     \
  X(nvrtcGetSupportedArchs)     \
  X(nvrtcVersion)

struct Nvrtc {
#define KILN_NVRTC_FIELD(name) decltype(&::name) name = nullptr;
  KILN_NVRTC_FUNCTIONS(KILN_NVRTC_FIELD)
#undef KILN_NVRTC_FIELD
  NvrtcInfo info;
};

// Searches and opens NVRTC without changing the choice of the process. If there is none, returns
// null and writes the reason and the cure to `problem`.
std::unique_ptr<const Nvrtc> open_nvrtc(const NvrtcSearch& search, std::string& problem);

// The process's NVRTC, opened at the first call by the search that was set. Throws CompileError.
// Thread-safe. A failure is not remembered, so NVRTC can be installed while a process runs.
const Nvrtc& nvrtc();

}  // namespace kiln
