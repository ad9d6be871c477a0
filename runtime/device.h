// The abstract device: what jit/ needs of a machine that runs kernels. Kinds: CUDA
// (runtime/cuda/), the emulated device. Everything here is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace kiln::runtime {

enum class DeviceKind : std::uint8_t { cuda, emulator };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cuda;
  int ordinal = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int sm_count = 0;
  std::size_t shared_bytes_per_block = 0;  // the opt-in limit
  std::size_t memory_bytes = 0;
  int driver_version = 0;  // as the driver reports it, 12040 = 12.4; 0 for the emulator
};

struct MemorySpan {
  std::uint64_t address;  // no initial values: each call has arrays of spans that it mostly leaves
  std::uint64_t bytes;
  bool written;
};

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  std::array<unsigned, 3> cluster{1, 1, 1};
  unsigned dynamic_shared_bytes = 0;
  bool programmatic = false;           // may start before its predecessor in the stream has ended
  bool precedes_programmatic = false;  // the next launch is such: the emulator records this one
};

// One compiled kernel, resident on one device. Freed with the last reference.
class Kernel {
 public:
  virtual ~Kernel() = default;
};

struct KernelImage {
  std::string_view cubin{};
  std::string_view ptx{};    // the emulator runs this
  std::string_view entry{};  // name of the extern "C" kernel
  unsigned dynamic_shared_bytes = 0;
};

// 128 opaque bytes for the tensor memory accelerator, passed to kernels by value.
struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> words{};
};
// The enumerations have 4 bytes because a TensorMapSpec with no padding is compared as memory.
enum class TensorMapElement : std::uint32_t { u8, u16, u32, i32, u64, f16, f32, f64, bf16, tf32 };
enum class TensorMapSwizzle : std::uint32_t { none, b32, b64, b128 };
// Fastest dimension first. strides_bytes[i] is the pitch of dimension i + 1. Requires: address
// 16-byte aligned, strides multiples of 16, box <= 256 a dimension.
struct TensorMapSpec {
  std::uint64_t address = 0;
  TensorMapElement element = TensorMapElement::u16;
  int rank = 0;
  std::array<std::uint64_t, 5> dims{};
  std::array<std::uint64_t, 4> strides_bytes{};
  std::array<std::uint32_t, 5> box{};
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;

  bool operator==(const TensorMapSpec& other) const {
    return std::memcmp(this, &other, sizeof other) == 0;
  }
};
static_assert(std::has_unique_object_representations_v<TensorMapSpec>);

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Loads the image and makes it resident with its attributes set, so that a launch never loads.
  // Must not be called while a stream of this device is capturing.
  virtual std::shared_ptr<Kernel> load(const KernelImage& image) = 0;

  // `arguments` is the kernel's single by-value parameter; at least `sizeof` of it bytes. `spans`
  // lists the memory that the kernel may touch: CUDA ignores it, the emulator checks it.
  virtual void launch(const Kernel& kernel, const LaunchShape& shape, void* stream,
                      std::span<const std::byte> arguments, std::span<const MemorySpan> spans) = 0;

  virtual bool is_capturing(void* stream) = 0;
  virtual void synchronize(void* stream) = 0;
  virtual TensorMap make_tensor_map(const TensorMapSpec& spec) = 0;
};

// A failed driver call: what() is complete ("cuLaunchKernelEx failed: CUDA_ERROR_… (…)").
class DeviceError : public std::runtime_error {
 public:
  DeviceError(std::string call, std::string code_name, const std::string& message)
      : std::runtime_error(call + " failed: " + code_name + " (" + message + ")"),
        call_(std::move(call)),
        code_name_(std::move(code_name)),
        message_(message) {}
  const std::string& call() const { return call_; }
  const std::string& code_name() const { return code_name_; }
  const std::string& message() const { return message_; }

 private:
  std::string call_, code_name_, message_;
};

// No device can be had: no driver, no GPU, or no such ordinal. what() says which and what to do.
class NoDeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace kiln::runtime
