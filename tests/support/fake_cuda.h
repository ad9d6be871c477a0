// The state of the fake CUDA driver (fake_cuda.cpp): what it pretends to be, which calls fail, and
// what it was asked. Shared by the library and the tests that open it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct FakeLaunch {
  CUlaunchConfig config{};
  std::vector<CUlaunchAttribute> attributes;
  CUfunction function = nullptr;
  CUcontext context = nullptr;
  std::vector<std::byte> arguments;
};

struct FakePointer {
  unsigned memory_type = CU_MEMORYTYPE_DEVICE;
  int ordinal = 0;
};

struct FakeCuda {
  int driver_version = 13000;
  int device_count = 2;
  int compute_major = 9;
  std::string missing_symbol;
  std::map<std::string, CUresult> failures;  // by function, until erased
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  std::map<CUdeviceptr, FakePointer> pointers;
  std::size_t argument_bytes = 0;  // how much a launch copies

  std::mutex mutex;
  std::vector<std::string> calls;
  std::map<std::string, int> attributes_set;  // "attribute/device" -> value
  std::vector<FakeLaunch> launches;
  std::map<std::thread::id, std::vector<CUcontext>> contexts_by_thread;

  // The calling thread's stack, the current context last.
  std::vector<CUcontext>& contexts() {
    const std::lock_guard lock(mutex);
    return contexts_by_thread[std::this_thread::get_id()];
  }
  int count(const std::string& call) const {
    int n = 0;
    for (const std::string& made : calls) n += made == call ? 1 : 0;
    return n;
  }
};

// Handles: a context says its device in its last digit.
inline CUcontext fake_primary_context(int device) {
  return reinterpret_cast<CUcontext>(std::size_t(0x1000 + device));
}
inline CUcontext fake_user_context(int device) {
  return reinterpret_cast<CUcontext>(std::size_t(0x2000 + device));
}
inline const CUlibrary kFakeLibrary = reinterpret_cast<CUlibrary>(std::size_t{0x3000});
inline const CUkernel kFakeKernel = reinterpret_cast<CUkernel>(std::size_t{0x4000});
inline const CUfunction kFakeFunction = reinterpret_cast<CUfunction>(std::size_t{0x5000});
inline const CUstream kFakeStream = reinterpret_cast<CUstream>(std::size_t{0x6000});
inline const CUevent kFakeEvent = reinterpret_cast<CUevent>(std::size_t{0x7000});

// The handles of what was loaded from an image that fake_cubin() gave a number.
template <class Handle>
Handle numbered(Handle first, std::size_t number) {
  return reinterpret_cast<Handle>(reinterpret_cast<std::size_t>(first) + number);
}

extern "C" FakeCuda* fake_cuda_state();
