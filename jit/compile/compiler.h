// Source text + arch -> cubin and PTX, by NVRTC, which is opened with dlopen at the first compile.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/op/yields.h"
#include "kiln/error.h"

namespace kiln {

struct SourceFile {
  std::string_view name;  // absolute and virtual: "/kiln/base/types.cuh"
  std::string_view text;
};

struct CompileInput {
  std::string_view name;  // virtual name of the program: "/kiln/kernel.cu"
  std::string_view source;
  std::span<const SourceFile> headers{};  // everything that the source can include
  std::string_view arch;                  // "sm_80", "sm_90a"; "compute_90a" for PTX alone
  std::string_view entry;                 // the extern "C" kernel whose resources are wanted
  std::span<const YieldRule> yields{};    // for sm_90a alone
};

struct ResourceUse {
  int registers = 0;
  int static_shared_bytes = 0;
  int spill_store_bytes = 0, spill_load_bytes = 0;
  int stack_bytes = 0;  // local memory
  // "(C75xx" notes and ignored setmaxnreg, verbatim; and what set_yields() warns of.
  std::vector<std::string> warnings;
};

// Begins the name of an arch for which NVRTC makes PTX and ptxas does not run.
constexpr std::string_view kVirtualPrefix = "compute_";

struct CompileResult {
  std::string cubin;  // empty for an arch of kVirtualPrefix
  std::string ptx;
  std::string log;
  ResourceUse resources;
  double seconds = 0;           // wall time of the whole compile
  double frontend_seconds = 0;  // parsing part, 0 when NVRTC does not tell
};

struct NvrtcInfo {
  bool loaded = false;
  std::string path;     // of the library
  std::string how;      // which rule found it: "KILN_NVRTC", "already loaded", "pip", …
  std::string version;  // "13.0"
  std::string build;    // 8 hex digits of a digest over the builtins library, or empty
  std::vector<int> archs;
  bool handles_signals = false;          // its handlers could not be kept away: see signal_slots.h
  std::vector<std::string> passed_over;  // libraries found before it, and why they cannot be used
  std::string problem;                   // why none could be loaded, with the cure
};

// Search order: `nvrtc_override` (wrong = an error) -> already loaded in the process -> pip's
// nvidia-cuda-nvrtc beside this library or on `python_paths` -> CUDA_HOME / CUDA_PATH ->
// the system loader and /usr/local/cuda. Never a major above `driver_version`'s when that is not 0.
struct NvrtcSearch {
  std::string nvrtc_override{};
  std::vector<std::string> python_paths{};  // site-packages folders
  std::string cuda_home{};                  // of CUDA_HOME or CUDA_PATH
  int driver_version = 0;
};
void set_nvrtc_search(NvrtcSearch search);  // before the first compile

// Loads NVRTC when `load`; otherwise only reports.
NvrtcInfo nvrtc_info(bool load);
bool nvrtc_is_loaded();

// The options that every compile uses, normalised; part of the cache key. `arch` is not in it.
std::string_view compile_options();

// Throws CompileError. Thread-safe; different inputs compile in parallel.
CompileResult compile(const CompileInput& input);

}  // namespace kiln
