// The examples' memory, which host and device both see: CUDA's managed memory where there is a GPU
// and the CUDA toolkit to build with, else malloc's, on which the emulated device computes.
#pragma once

#include <stdlib.h>

#ifdef EXAMPLE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

static inline int on_gpu(void) {
#ifdef EXAMPLE_WITH_CUDA
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return 0;
#endif
}

static inline void* allocate(size_t bytes) {
#ifdef EXAMPLE_WITH_CUDA
  void* data = NULL;
  if (on_gpu()) {
    return cudaMallocManaged(&data, bytes, cudaMemAttachGlobal) == cudaSuccess ? data : NULL;
  }
#endif
  return malloc(bytes);
}

// Waits for what was enqueued; 0 when that went wrong.
static inline int finish(void) {
#ifdef EXAMPLE_WITH_CUDA
  if (on_gpu()) return cudaDeviceSynchronize() == cudaSuccess;
#endif
  return 1;
}
