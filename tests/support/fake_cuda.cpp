// A CUDA driver that runs nothing: it keeps contexts, records calls and fails on request, so that
// runtime/cuda can be tested without a GPU. runtime/ opens it in place of libcuda.so.1.
#include "tests/support/fake_cuda.h"

#include <cstring>
#include <new>

#include "runtime/cuda/driver.h"

extern "C" FakeCuda* fake_cuda_state() {
  static FakeCuda* const state = new FakeCuda;
  return state;
}

namespace {

FakeCuda& fake() { return *fake_cuda_state(); }

// Notes the call; what it must return.
CUresult record(const char* call) {
  const std::lock_guard lock(fake().mutex);
  fake().calls.push_back(call);
  const auto failure = fake().failures.find(call);
  return failure == fake().failures.end() ? CUDA_SUCCESS : failure->second;
}

CUcontext current() {
  const std::vector<CUcontext>& contexts = fake().contexts();
  return contexts.empty() ? nullptr : contexts.back();
}

// Of an ELF image, the low byte of its flags; 0 of anything else.
std::size_t number_of_image(const void* image) {
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return 0;
  return static_cast<const unsigned char*>(image)[48];
}

template <class Handle>
std::size_t number_of(Handle handle, Handle first) {
  return reinterpret_cast<std::size_t>(handle) - reinterpret_cast<std::size_t>(first);
}

}  // namespace

extern "C" {

CUresult cuDriverGetVersion(int* version) {
  *version = fake().driver_version;
  return record("cuDriverGetVersion");
}

CUresult cuInit(unsigned) { return record("cuInit"); }

CUresult cuGetErrorName(CUresult result, const char** name) {
  static const std::map<int, const char*> kNames{
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}};
  const auto known = kNames.find(result);
  if (known == kNames.end()) return CUDA_ERROR_INVALID_VALUE;
  *name = known->second;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char** text) {
  if (result != CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_INVALID_VALUE;
  *text = "invalid argument";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = fake().device_count;
  return record("cuDeviceGetCount");
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return record("cuDeviceGet");
}

CUresult cuDeviceGetName(char* name, int, CUdevice) {
  std::strcpy(name, "Fake GPU");
  return record("cuDeviceGetName");
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = std::size_t{8} << 30;
  return record("cuDeviceTotalMem");
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = fake().compute_major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 232448;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 233472;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return record("cuDeviceGetAttribute");
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = fake_primary_context(device);
  return record("cuDevicePrimaryCtxRetain");
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current();
  return record("cuCtxGetCurrent");
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = int(reinterpret_cast<std::size_t>(current()) & 0xf);
  return record("cuCtxGetDevice");
}

CUresult cuCtxPushCurrent(CUcontext context) {
  const CUresult result = record("cuCtxPushCurrent");
  if (result == CUDA_SUCCESS) fake().contexts().push_back(context);
  return result;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  *context = current();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  fake().contexts().pop_back();
  return record("cuCtxPopCurrent");
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  const CUresult result = record("cuLibraryLoadData");
  if (result == CUDA_SUCCESS) *library = numbered(kFakeLibrary, number_of_image(image));
  return result;
}

CUresult cuLibraryUnload(CUlibrary) { return record("cuLibraryUnload"); }

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char*) {
  *kernel = numbered(kFakeKernel, number_of(library, kFakeLibrary));
  return record("cuLibraryGetKernel");
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel,
                              CUdevice device) {
  {
    const std::lock_guard lock(fake().mutex);
    fake().attributes_set[std::to_string(attribute) + "/" + std::to_string(device)] = value;
  }
  return record("cuKernelSetAttribute");
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = numbered(kFakeFunction, number_of(kernel, kFakeKernel));
  return record("cuKernelGetFunction");
}

CUresult cuFuncLoad(CUfunction) { return record("cuFuncLoad"); }

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void**) {
  const auto* bytes = static_cast<const std::byte*>(parameters[0]);
  FakeLaunch launch{.config = *config,
                    .attributes = {config->attrs, config->attrs + config->numAttrs},
                    .function = function,
                    .context = current(),
                    .arguments = {bytes, bytes + fake().argument_bytes}};
  {
    const std::lock_guard lock(fake().mutex);
    fake().launches.push_back(std::move(launch));
  }
  return record("cuLaunchKernelEx");
}

CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = fake().capture;
  return record("cuStreamIsCapturing");
}

CUresult cuStreamSynchronize(CUstream) { return record("cuStreamSynchronize"); }

// Device memory is host memory; copies are done at once.
CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  const CUresult result = record("cuMemAlloc");
  if (result == CUDA_SUCCESS) {
    *address = reinterpret_cast<CUdeviceptr>(::operator new(bytes, std::align_val_t{256}));
    std::memset(reinterpret_cast<void*>(*address), 0, bytes);
    const std::lock_guard lock(fake().mutex);
    fake().pointers[*address] = {};
  }
  return result;
}

CUresult cuMemFree(CUdeviceptr address) {
  ::operator delete(reinterpret_cast<void*>(address), std::align_val_t{256});
  return record("cuMemFree");
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  const CUresult result = record("cuMemHostAlloc");
  if (result == CUDA_SUCCESS) *memory = ::operator new(bytes);
  return result;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr device, const void* host, size_t bytes, CUstream) {
  std::memcpy(reinterpret_cast<void*>(device), host, bytes);
  return record("cuMemcpyHtoDAsync");
}

CUresult cuMemcpyDtoHAsync(void* host, CUdeviceptr device, size_t bytes, CUstream) {
  std::memcpy(host, reinterpret_cast<const void*>(device), bytes);
  return record("cuMemcpyDtoHAsync");
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  *stream = kFakeStream;
  return record("cuStreamCreate");
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = kFakeEvent;
  return record("cuEventCreate");
}

CUresult cuEventRecord(CUevent, CUstream) { return record("cuEventRecord"); }

CUresult cuEventSynchronize(CUevent) { return record("cuEventSynchronize"); }

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const CUresult result = record("cuPointerGetAttribute");
  const auto known = fake().pointers.find(pointer);
  if (known == fake().pointers.end()) return CUDA_ERROR_INVALID_VALUE;
  const bool is_type = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  const int value = is_type ? int(known->second.memory_type) : known->second.ordinal;
  std::memcpy(data, &value, sizeof value);
  return result;
}

// What kiln bench calls beside runtime/cuda. Every span of time is 0.1 ms.
CUresult cuCtxSetCurrent(CUcontext context) {
  fake().contexts() = {context};
  return record("cuCtxSetCurrent");
}

CUresult cuMemcpyHtoD(CUdeviceptr device, const void* host, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(device), host, bytes);
  return record("cuMemcpyHtoD");
}

#undef cuEventElapsedTime  // newer headers rename it; every driver has the old name
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 0.1f;
  return record("cuEventElapsedTime");
}

CUresult cuEventDestroy(CUevent) { return record("cuEventDestroy"); }

CUresult cuCtxSynchronize() { return record("cuCtxSynchronize"); }

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  *map = {};
  map->opaque[0] = type;
  map->opaque[1] = rank;
  map->opaque[2] = swizzle;
  return record("cuTensorMapEncodeTiled");
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* found) {
#define FAKE_ENTRY(name) {#name, reinterpret_cast<void*>(&::name)},
  static const std::map<std::string, void*> kFunctions{KILN_DRIVER_FUNCTIONS(FAKE_ENTRY)};
#undef FAKE_ENTRY
  const auto known = kFunctions.find(name);
  const bool have = known != kFunctions.end() && fake().missing_symbol != name;
  *function = have ? known->second : nullptr;
  if (found != nullptr) {  // the runtime of CUDA does not ask
    *found = have ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return have ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
