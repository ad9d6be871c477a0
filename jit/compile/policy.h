// Whether a miss may compile: KILN_JIT, set_jit and NoCompile; and what to say when it may not.
#pragma once

#include "jit/compile/kernel_source.h"
#include "kiln/control.h"

namespace kiln {

// Throws CompileDisabled when compiling is off for the process or this thread.
void require_compiling(const Specialization& spec, const UserTexts& texts,
                       const KernelSource& source);

// Whether compiling is on for the process and this thread.
bool may_compile();

// A kernel is missing while the caller's stream is being captured into a graph.
[[noreturn]] void refuse_capture(const Specialization& spec, const UserTexts& texts);

JitMode jit_mode();

}  // namespace kiln
