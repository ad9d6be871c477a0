// NVRTC behind dlopen: where it is looked for, and the functions that the compiler calls.
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

// Searches and opens, without touching the process's choice. Null, and the reason with its cure in
// `problem`, when there is none.
std::unique_ptr<const Nvrtc> open_nvrtc(const NvrtcSearch& search, std::string& problem);

// The process's NVRTC, opened at the first call by the search that was set. Throws CompileError.
// Thread-safe; a failure is not remembered, so that installing NVRTC cures a running process.
const Nvrtc& nvrtc();

}  // namespace kiln
