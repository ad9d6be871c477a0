// How a launch gets its kernel. Declared here and defined in jit/compile/engine.cpp:
//
//   specialization --memory hit--> kernel
//        miss -> source -> key -> disk layers --hit--> load -> kernel
//                                 miss -> NVRTC -> load from memory -> kernel; publish to disk
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <string>

#include "jit/op/specialization.h"
#include "jit/op/user_texts.h"
#include "runtime/device.h"

namespace kiln {

// A kernel resident on one device. Lives until the process ends, so plain references may be kept.
struct LoadedKernel {
  std::shared_ptr<runtime::Kernel> kernel;
  unsigned threads = 0;
  unsigned dynamic_shared_bytes = 0;
};

// The kernel for a call on `device`; a memory hit takes no lock. `stream` matters on a miss only:
// while it is capturing nothing may be loaded, and CompileDisabled says so.
const LoadedKernel& resident_kernel(const Specialization& spec, const UserTexts& texts,
                                    runtime::Device& device, void* stream);
// As above with no stream to ask about (preload, plans).
const LoadedKernel& preload_kernel(const Specialization& spec, const UserTexts& texts,
                                   runtime::Device& device);

struct KernelOrFailure {
  const LoadedKernel* kernel = nullptr;
  std::exception_ptr failure;
};
// Finds the kernels of one call, on a miss as resident_kernel or, where `stream` is null,
// preload_kernel does. Several that must be compiled are compiled at the same time, so that a first
// call takes as long as the slowest of them.
void find_together(std::span<const Specialization* const> specs, const UserTexts& texts,
                   runtime::Device& device, void* const* stream, std::span<KernelOrFailure> found);

// The spec of one kernel as JSON text, as prewarm and preload take it. Defined in
// jit/tools/spec.cpp.
std::string spec_text(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
