// Kiln's public C++ API: attention, GEMM and norms on views of device memory, or of host memory
// where the emulated device computes (set_device in kiln/control.h); such calls return when they
// are done.
//
// Every function is thread-safe, enqueues on `stream` (a CUstream or cudaStream_t; null = the
// default stream) and returns without waiting. The first call of a kind compiles a kernel or reads
// it from the cache; later ones launch in about a microsecond. Nothing allocates device memory:
// where a call needs some, it asks its options' Workspace.
//
// Throws: std::invalid_argument (kiln::TypeError for dtypes) with one sentence that names the
// argument; CompileError, CudaError, EmulatorError and CompileDisabled, see kiln/error.h. Each
// operation, plan and launch has a noexcept twin, try_*, that returns a Status.
#pragma once

#include "kiln/attention.h"
#include "kiln/error.h"
#include "kiln/export.h"
#include "kiln/gemm.h"
#include "kiln/norm.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/variant.h"
#include "kiln/workspace.h"
