// PyTorch's C functions for kernels of operators, its stable ABI, found at run time in the libtorch
// that is loaded: nothing of PyTorch is needed to build. And owners of what these hand out.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlpack.h"
#include "kiln/tensor.h"

namespace kiln::python {

// One argument or result of an operator: a number, a handle, or the address of another slot.
using TorchSlot = std::uint64_t;
using TorchStatus = std::int32_t;  // 0 = success; what went wrong was logged
using TorchKernel = void(TorchSlot* stack, std::uint64_t arguments, std::uint64_t results);

struct TorchTensorObject;
struct TorchListObject;
struct TorchTextObject;
struct TorchLibraryObject;
using TorchTensorHandle = TorchTensorObject*;

// clang-format off
#define KILN_TORCH_FUNCTIONS(X)                                                                     \
  X(std::uint64_t, aoti_torch_abi_version, ())                                                      \
  X(TorchStatus, aoti_torch_library_init_impl,                                                      \
    (const char* ns, const char* key, const char* file, std::uint32_t line, TorchLibraryObject**))  \
  X(TorchStatus, torch_library_impl,                                                                \
    (TorchLibraryObject*, const char* name, TorchKernel*, std::uint64_t version))                   \
  X(TorchStatus, aoti_torch_delete_tensor_object, (TorchTensorHandle))                              \
  X(TorchStatus, aoti_torch_is_defined, (TorchTensorHandle, bool*))                                 \
  X(TorchStatus, torch_get_const_data_ptr, (TorchTensorHandle, const void**))                       \
  X(TorchStatus, torch_get_mutable_data_ptr, (TorchTensorHandle, void**))                           \
  X(TorchStatus, aoti_torch_get_dim, (TorchTensorHandle, std::int64_t*))                            \
  X(TorchStatus, aoti_torch_get_sizes, (TorchTensorHandle, std::int64_t**))                         \
  X(TorchStatus, aoti_torch_get_strides, (TorchTensorHandle, std::int64_t**))                       \
  X(TorchStatus, aoti_torch_get_dtype, (TorchTensorHandle, std::int32_t*))                          \
  X(TorchStatus, aoti_torch_get_device_type, (TorchTensorHandle, std::int32_t*))                    \
  X(TorchStatus, aoti_torch_get_device_index, (TorchTensorHandle, std::int32_t*))                   \
  X(TorchStatus, aoti_torch_empty_strided,                                                          \
    (std::int64_t rank, const std::int64_t* shape, const std::int64_t* strides, std::int32_t dtype, \
     std::int32_t device_type, std::int32_t device_index, TorchTensorHandle*))                      \
  X(TorchStatus, torch_set_requires_grad, (TorchTensorHandle, bool))                                \
  X(bool, aoti_torch_grad_mode_is_enabled, ())                                                      \
  X(std::int32_t, aoti_torch_device_type_cpu, ())                                                   \
  X(std::int32_t, aoti_torch_device_type_cuda, ())                                                  \
  X(TorchStatus, torch_list_size, (TorchListObject*, std::size_t*))                                 \
  X(TorchStatus, torch_list_get_item, (TorchListObject*, std::size_t index, TorchSlot*))            \
  X(TorchStatus, torch_delete_list, (TorchListObject*))                                             \
  X(TorchStatus, torch_string_length, (TorchTextObject*, std::size_t*))                             \
  X(TorchStatus, torch_string_c_str, (TorchTextObject*, const char**))                              \
  X(TorchStatus, torch_delete_string, (TorchTextObject*))
// clang-format on

// at::native::is_neg, of an at::Tensor: like impl_requires_grad below from outside of the stable
// ABI.
using TorchIsNegative = bool(const void* tensor);

struct TorchAbi {
#define KILN_TORCH_DECLARE(result, name, parameters) result(*name) parameters = nullptr;
  KILN_TORCH_FUNCTIONS(KILN_TORCH_DECLARE)
#undef KILN_TORCH_DECLARE

  // Of libtorch_cuda; null where PyTorch has no CUDA.
  TorchStatus (*aoti_torch_get_current_cuda_stream)(std::int32_t index, void** stream) = nullptr;
  // Since 2.13; optional arguments are freed by `delete` before it.
  TorchStatus (*torch_delete_stable_ivalue)(TorchSlot*) = nullptr;
  // Since 2.13: of the calling thread's last failure.
  const char* (*torch_exception_get_what)() = nullptr;
  // c10::TensorImpl::requires_grad, from outside of the stable ABI, which only sets what this asks.
  // Called where grad mode is on.
  bool (*impl_requires_grad)(const void* impl) = nullptr;

  TorchIsNegative* is_negative = nullptr;

  bool requires_grad(TorchTensorHandle tensor) const {
    // A handle is the address of a tensor, which is the address of its implementation.
    return impl_requires_grad(*reinterpret_cast<void* const*>(tensor));
  }
  // Codes of dtypes are only known at run time.
  DlDataType dlpack_type_of(std::int32_t dtype) const;
  std::int32_t code_of(DType dtype) const;

  struct DTypeCode {
    std::int32_t code;
    DlDataType type;
  };
  std::vector<DTypeCode> dtypes;
};

// The version whose rules the kernels were written to, and the first that they are registered in.
inline constexpr std::uint64_t kTorchVersion = (std::uint64_t{2} << 56) | (std::uint64_t{11} << 48);

// Finds the functions in `library`, which must be loaded; false where it or one of them is missing
// or the version is older. Under the GIL, before any kernel runs.
bool find_torch_abi(const std::string& library);
// What was found.
const TorchAbi& torch_abi();
// In PyTorch's library for the CPU, which must be loaded; null where it has no such function.
TorchIsNegative* find_torch_is_negative();

struct TorchDeleter {
  void operator()(TorchTensorObject* tensor) const {
    torch_abi().aoti_torch_delete_tensor_object(tensor);
  }
  void operator()(TorchListObject* list) const { torch_abi().torch_delete_list(list); }
  void operator()(TorchTextObject* text) const { torch_abi().torch_delete_string(text); }
};
using TorchTensor = std::unique_ptr<TorchTensorObject, TorchDeleter>;
using TorchList = std::unique_ptr<TorchListObject, TorchDeleter>;
using TorchText = std::unique_ptr<TorchTextObject, TorchDeleter>;

// Of a list of integers.
std::size_t size_of(const TorchList& list);
std::int64_t item_of(const TorchList& list, std::size_t index);
// Lives as long as its text.
std::string_view view_of(const TorchText& text);

// The arguments of a call in their schema's order. Each is taken once and then belongs to its
// taker; nothing throws before all of them are taken, so that all of them are freed.
class TorchArguments {
 public:
  explicit TorchArguments(TorchSlot* next) : next_(next) {}

  TorchTensor tensor() noexcept { return TorchTensor(pointer<TorchTensorObject>(*next_++)); }
  TorchTensor optional_tensor() noexcept {
    return TorchTensor(pointer<TorchTensorObject>(optional().value_or(0)));
  }
  TorchList list() noexcept { return TorchList(pointer<TorchListObject>(*next_++)); }
  TorchList optional_list() noexcept {
    return TorchList(pointer<TorchListObject>(optional().value_or(0)));
  }
  TorchText text() noexcept { return TorchText(pointer<TorchTextObject>(*next_++)); }
  TorchText optional_text() noexcept {
    return TorchText(pointer<TorchTextObject>(optional().value_or(0)));
  }
  bool boolean() noexcept { return (*next_++ & 1) != 0; }
  std::int64_t integer() noexcept { return static_cast<std::int64_t>(*next_++); }
  std::optional<std::int64_t> optional_integer() noexcept {
    const std::optional<TorchSlot> slot = optional();
    if (!slot) return std::nullopt;
    return static_cast<std::int64_t>(*slot);
  }
  double number() noexcept { return std::bit_cast<double>(*next_++); }
  std::optional<double> optional_number() noexcept {
    const std::optional<TorchSlot> slot = optional();
    if (!slot) return std::nullopt;
    return std::bit_cast<double>(*slot);
  }
  std::optional<std::int32_t> optional_dtype() noexcept {
    const std::optional<TorchSlot> slot = optional();
    if (!slot) return std::nullopt;
    return static_cast<std::int32_t>(*slot);
  }

 private:
  static_assert(std::endian::native == std::endian::little, "small values lie at a slot's start");

  template <class Object>
  static Object* pointer(TorchSlot slot) {
    return reinterpret_cast<Object*>(slot);
  }
  std::optional<TorchSlot> optional() noexcept;

  TorchSlot* next_;
};

}  // namespace kiln::python
