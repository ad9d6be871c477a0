// The CUDA kind of device: attributes, loading, launching; and the registry of devices.
#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/context.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/errors.h"
#include "runtime/cuda/kernel_image.h"
#include "runtime/cuda/tensor_map.h"

namespace kiln::runtime {
namespace {

class CudaDevice;

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const DriverTable& driver, const CudaDevice& device, std::string name)
      : driver(driver), device(device), name(std::move(name)) {}
  ~CudaKernel() override {
    // The result is dropped: it can only say that the driver has already shut down, or repeat an
    // error that the caller has been told of.
    if (library != nullptr) driver.cuLibraryUnload(library);
  }

  const DriverTable& driver;
  const CudaDevice& device;
  const std::string name;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUcontext context = nullptr;    // where `function` is resident
  CUfunction function = nullptr;  // saves the driver the look-up of `kernel` in that context
};

std::string shape_text(const CudaKernel& kernel, const LaunchShape& shape) {
  const auto triple = [](const std::array<unsigned, 3>& n) {
    return std::to_string(n[0]) + "x" + std::to_string(n[1]) + "x" + std::to_string(n[2]);
  };
  return "kernel " + kernel.name + ", grid " + triple(shape.grid) + ", block " +
         triple(shape.block) + ", cluster " + triple(shape.cluster) + ", " +
         std::to_string(shape.dynamic_shared_bytes) + " bytes of dynamic shared memory";
}

DeviceInfo read_info(const DriverTable& driver, CUdevice device, int ordinal) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check(driver, driver.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.ordinal = ordinal;
  std::array<char, 256> name{};
  check(driver, driver.cuDeviceGetName(name.data(), int(name.size()) - 1, device),
        "cuDeviceGetName");
  info.name = name.data();
  info.compute_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.compute_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.shared_bytes_per_block =
      std::size_t(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  check(driver, driver.cuDeviceTotalMem(&info.memory_bytes, device), "cuDeviceTotalMem");
  info.driver_version = cuda_status().driver_version;
  return info;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const DriverTable& driver, CUdevice device, int ordinal)
      : driver_(driver), primary_(driver, device), info_(read_info(driver, device, ordinal)) {}

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<Kernel> load(const KernelImage& image) override;
  void launch(const Kernel& kernel, const LaunchShape& shape, void* stream,
              std::span<const std::byte> arguments, std::span<const MemorySpan> spans) override;
  bool is_capturing(void* stream) override;
  void synchronize(void* stream) override;
  TensorMap make_tensor_map(const TensorMapSpec& spec) override;

 private:
  void check_image(const KernelImage& image) const;

  const DriverTable& driver_;
  PrimaryContext primary_;
  const DeviceInfo info_;
};

void CudaDevice::check_image(const KernelImage& image) const {
  const std::string name(image.entry);
  if (const std::string problem = cubin_problem(image.cubin); !problem.empty()) {
    throw driver_error(driver_, CUDA_ERROR_INVALID_IMAGE, "cuLibraryLoadData",
                       "kernel " + name + ": " + problem);
  }
  if (image.dynamic_shared_bytes > info_.shared_bytes_per_block) {
    throw driver_error(driver_, CUDA_ERROR_INVALID_VALUE, "cuKernelSetAttribute",
                       "kernel " + name + " asks for " +
                           std::to_string(image.dynamic_shared_bytes) +
                           " bytes of dynamic shared memory, " + info_.name + " has " +
                           std::to_string(info_.shared_bytes_per_block) + " a block");
  }
}

std::shared_ptr<Kernel> CudaDevice::load(const KernelImage& image) {
  check_image(image);
  const ContextScope scope(primary_);
  auto loaded = std::make_shared<CudaKernel>(driver_, *this, std::string(image.entry));
  const auto checked = [&](CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) {
      throw driver_error(driver_, result, call,
                         "kernel " + loaded->name + " on " + info_.name + " (compute capability " +
                             std::to_string(info_.compute_major) + "." +
                             std::to_string(info_.compute_minor) + ")");
    }
  };
  checked(driver_.cuLibraryLoadData(&loaded->library, image.cubin.data(), nullptr, nullptr, 0,
                                    nullptr, nullptr, 0),
          "cuLibraryLoadData");
  checked(driver_.cuLibraryGetKernel(&loaded->kernel, loaded->library, loaded->name.c_str()),
          "cuLibraryGetKernel");
  if (image.dynamic_shared_bytes > 0) {
    checked(driver_.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         int(image.dynamic_shared_bytes), loaded->kernel,
                                         primary_.device()),
            "cuKernelSetAttribute");
  }
  checked(driver_.cuKernelGetFunction(&loaded->function, loaded->kernel), "cuKernelGetFunction");
  // The driver loads lazily by default; without this the first launch would load.
  checked(driver_.cuFuncLoad(loaded->function), "cuFuncLoad");
  loaded->context = scope.context();
  return loaded;
}

void CudaDevice::launch(const Kernel& kernel, const LaunchShape& shape, void* stream,
                        std::span<const std::byte> arguments, std::span<const MemorySpan>) {
  const auto& target = static_cast<const CudaKernel&>(kernel);
  if (&target.device != this) {
    throw std::invalid_argument("kernel " + target.name + " was loaded on another device than " +
                                std::to_string(info_.ordinal) + ": load it on this one");
  }
  std::array<CUlaunchAttribute, 2> attributes;
  unsigned attribute_count = 0;
  const auto [cluster_x, cluster_y, cluster_z] = shape.cluster;
  if (cluster_x != 1 || cluster_y != 1 || cluster_z != 1) {
    CUlaunchAttribute& attribute = attributes[attribute_count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {cluster_x, cluster_y, cluster_z};
  }
  // A permission, not a request: devices before 9.0 do without.
  if (shape.programmatic && info_.compute_major >= 9) {
    CUlaunchAttribute& attribute = attributes[attribute_count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  const CUlaunchConfig config{
      .gridDimX = shape.grid[0],
      .gridDimY = shape.grid[1],
      .gridDimZ = shape.grid[2],
      .blockDimX = shape.block[0],
      .blockDimY = shape.block[1],
      .blockDimZ = shape.block[2],
      .sharedMemBytes = shape.dynamic_shared_bytes,
      .hStream = static_cast<CUstream>(stream),
      .attrs = attributes.data(),
      .numAttrs = attribute_count,
  };
  void* parameters[] = {const_cast<std::byte*>(arguments.data())};
  const ContextScope scope(primary_);
  // In a context of the caller's own making the driver finds the function by its kernel handle.
  const CUfunction function = scope.context() == target.context
                                  ? target.function
                                  : reinterpret_cast<CUfunction>(target.kernel);
  const CUresult result = driver_.cuLaunchKernelEx(&config, function, parameters, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw driver_error(driver_, result, "cuLaunchKernelEx", shape_text(target, shape));
}

bool CudaDevice::is_capturing(void* stream) {
  const ContextScope scope(primary_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver_.cuStreamIsCapturing(static_cast<CUstream>(stream), &status);
  // The legacy stream answers this while another stream captures: loading would break that capture.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  check(driver_, result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CudaDevice::synchronize(void* stream) {
  const ContextScope scope(primary_);
  check(driver_, driver_.cuStreamSynchronize(static_cast<CUstream>(stream)), "cuStreamSynchronize");
}

TensorMap CudaDevice::make_tensor_map(const TensorMapSpec& spec) {
  if (info_.compute_major < 9) {
    throw std::invalid_argument("tensor maps need compute capability 9.0 or newer, " + info_.name +
                                " has " + std::to_string(info_.compute_major) + "." +
                                std::to_string(info_.compute_minor));
  }
  const ContextScope scope(primary_);
  return encode_tensor_map(driver_, spec);
}

constexpr std::size_t kMaxDevices = 64;

// Looked up without a lock. Devices are never destroyed: kernels refer to them.
struct Registry {
  std::array<std::atomic<CudaDevice*>, kMaxDevices> devices{};
  std::mutex mutex;
  std::vector<std::unique_ptr<CudaDevice>> owned;
};

Registry& registry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

Device& cuda_device(int ordinal) {
  Registry& all = registry();
  if (ordinal >= 0 && std::size_t(ordinal) < kMaxDevices) {
    if (CudaDevice* ready = all.devices[ordinal].load(std::memory_order_acquire)) return *ready;
  }
  const DriverTable& table = driver();
  const int count = std::min(cuda_status().device_count, int(kMaxDevices));
  if (ordinal < 0 || ordinal >= count) {
    throw NoDeviceError("there is no CUDA device " + std::to_string(ordinal) +
                        ": this process can use " + std::to_string(count) +
                        " (see nvidia-smi and CUDA_VISIBLE_DEVICES)");
  }
  const std::lock_guard lock(all.mutex);
  if (CudaDevice* ready = all.devices[ordinal].load(std::memory_order_acquire)) return *ready;
  CUdevice device = 0;
  check(table, table.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  all.owned.push_back(std::make_unique<CudaDevice>(table, device, ordinal));
  all.devices[ordinal].store(all.owned.back().get(), std::memory_order_release);
  return *all.owned.back();
}

int cuda_ordinal_of_pointer(const void* pointer) {
  const DriverTable* table = driver_if_usable();
  if (table == nullptr || pointer == nullptr) return -1;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  unsigned type = 0;
  CUresult result = table->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (result == CUDA_ERROR_INVALID_VALUE) return -1;  // memory that CUDA does not know
  check(*table, result, "cuPointerGetAttribute");
  if (type == CU_MEMORYTYPE_HOST) return -1;  // pinned: visible to every device, of none
  int ordinal = -1;
  result = table->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  check(*table, result, "cuPointerGetAttribute");
  return ordinal;
}

int cuda_current_ordinal() {
  const DriverTable* table = driver_if_usable();
  CUcontext context = nullptr;
  if (table == nullptr || table->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) {
    return -1;
  }
  CUdevice device = -1;  // a context that was destroyed stays current, and has none
  return table->cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

void set_driver_library_for_testing(const char* path) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (auto& device : all.devices) device.store(nullptr, std::memory_order_release);
  reset_driver(path);
}

}  // namespace kiln::runtime
