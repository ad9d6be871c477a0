// Kiln's public C++ API: attention, GEMM, norms, and what serving needs beside them, on views of
// device memory. Views of host memory are computed by the emulated device (set_device in
// kiln/control.h); such calls return when they are done.
//
// Every function is thread-safe, enqueues its work on `stream` (a CUstream or cudaStream_t; null
// means the default stream) and returns without waiting. The first call of a kind compiles a kernel
// or reads it from the cache; later calls launch in about a microsecond. No function allocates
// device memory: a call that needs some asks the Workspace of its options.
//
// Throws: std::invalid_argument (kiln::TypeError for dtypes) with one sentence that names the
// argument; CompileError, CudaError, EmulatorError and CompileDisabled, see kiln/error.h. Each
// operation, plan and launch has a noexcept twin, try_*, that returns a Status.
#pragma once

#include "kiln/append_kv.h"
#include "kiln/attention.h"
#include "kiln/error.h"
#include "kiln/export.h"
#include "kiln/gemm.h"
#include "kiln/merge_states.h"
#include "kiln/moe.h"
#include "kiln/norm.h"
#include "kiln/plan.h"
#include "kiln/quantize.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/variant.h"
#include "kiln/varlen.h"
#include "kiln/workspace.h"
