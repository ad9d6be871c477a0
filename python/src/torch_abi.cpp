// PyTorch's C functions for kernels of operators, found at run time.
#include "torch_abi.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "dtypes.h"

namespace kiln::python {
namespace {

TorchAbi g_abi;

// Every dtype that DLPack has a code for.
constexpr std::array<std::pair<const char*, DlDataType>, 20> kDTypes = {{
    {"bfloat16", {kDlBfloat, 16, 1}},
    {"float16", {kDlFloat, 16, 1}},
    {"float32", {kDlFloat, 32, 1}},
    {"bool", {kDlBool, 8, 1}},
    {"uint8", {kDlUInt, 8, 1}},
    {"float8_e4m3fn", {kDlFloat8E4m3fn, 8, 1}},
    {"float8_e5m2", {kDlFloat8E5m2, 8, 1}},
    {"float64", {kDlFloat, 64, 1}},
    {"int8", {kDlInt, 8, 1}},
    {"int16", {kDlInt, 16, 1}},
    {"int32", {kDlInt, 32, 1}},
    {"int64", {kDlInt, 64, 1}},
    {"uint16", {kDlUInt, 16, 1}},
    {"uint32", {kDlUInt, 32, 1}},
    {"uint64", {kDlUInt, 64, 1}},
    {"complex32", {kDlComplex, 32, 1}},
    {"complex64", {kDlComplex, 64, 1}},
    {"complex128", {kDlComplex, 128, 1}},
    {"float8_e4m3fnuz", {kDlFloat8E4m3fnuz, 8, 1}},
    {"float8_e5m2fnuz", {kDlFloat8E5m2fnuz, 8, 1}},
}};

// Keeps the library loaded; null where nobody else loaded it.
void* loaded(const std::string& library) {
  return dlopen(library.c_str(), RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
}

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

constexpr const char* kIsNegative = "_ZN2at6native6is_negERKNS_6TensorE";

bool find_functions(void* library, TorchAbi& abi) {
#define KILN_TORCH_FIND(result, name, parameters) \
  if (!find(library, #name, abi.name)) return false;
  KILN_TORCH_FUNCTIONS(KILN_TORCH_FIND)
#undef KILN_TORCH_FIND
  find(library, "torch_delete_stable_ivalue", abi.torch_delete_stable_ivalue);
  find(library, "torch_exception_get_what_without_backtrace", abi.torch_exception_get_what);
  if (void* cuda = loaded("libtorch_cuda.so")) {
    find(cuda, "aoti_torch_get_current_cuda_stream", abi.aoti_torch_get_current_cuda_stream);
  }
  return find(library, kIsNegative, abi.is_negative) &&
         find(library, "_ZNK3c1010TensorImpl13requires_gradEv", abi.impl_requires_grad);
}

bool find_dtypes(void* library, TorchAbi& abi) {
  for (const auto& [name, type] : kDTypes) {
    std::int32_t (*code)() = nullptr;
    if (!find(library, (std::string("aoti_torch_dtype_") + name).c_str(), code)) return false;
    abi.dtypes.push_back({code(), type});
  }
  std::int32_t (*scale_type)() = nullptr;  // 2.11 names it otherwise
  if (find(library, "torch_dtype_float8_e8m0fnu", scale_type)) {
    abi.dtypes.push_back({scale_type(), {kDlFloat8E8m0fnu, 8, 1}});
  }
  return true;
}

// Whether asking for grad, which no contract covers, tells what was set.
bool tells_grad(const TorchAbi& abi) {
  TorchTensorHandle tensor = nullptr;
  if (abi.aoti_torch_empty_strided(0, nullptr, nullptr, abi.code_of(DType::f32),
                                   abi.aoti_torch_device_type_cpu(), 0, &tensor) != 0) {
    return false;
  }
  bool tells = !abi.requires_grad(tensor);
  tells = tells && abi.torch_set_requires_grad(tensor, true) == 0 && abi.requires_grad(tensor);
  abi.aoti_torch_delete_tensor_object(tensor);
  return tells;
}

}  // namespace

DlDataType TorchAbi::dlpack_type_of(std::int32_t dtype) const {
  for (const DTypeCode& known : dtypes) {
    if (known.code == dtype) return known.type;
  }
  return {kDlOpaque, 8, 1};
}

std::int32_t TorchAbi::code_of(DType dtype) const {
  for (const DTypeCode& known : dtypes) {
    if (dtype_of(known.type) == dtype) return known.code;
  }
  return -1;
}

bool find_torch_abi(const std::string& library) {
  void* handle = loaded(library);
  TorchAbi abi;
  if (handle == nullptr || !find_functions(handle, abi) || !find_dtypes(handle, abi) ||
      abi.aoti_torch_abi_version() < kTorchVersion || !tells_grad(abi)) {
    return false;
  }
  if (g_abi.dtypes.empty()) g_abi = std::move(abi);
  return true;
}

const TorchAbi& torch_abi() { return g_abi; }

TorchIsNegative* find_torch_is_negative() {
  TorchIsNegative* function = nullptr;
  if (void* library = loaded("libtorch_cpu.so")) find(library, kIsNegative, function);
  return function;
}

std::size_t size_of(const TorchList& list) {
  std::size_t size = 0;
  torch_abi().torch_list_size(list.get(), &size);
  return size;
}

std::int64_t item_of(const TorchList& list, std::size_t index) {
  TorchSlot slot = 0;
  torch_abi().torch_list_get_item(list.get(), index, &slot);
  return static_cast<std::int64_t>(slot);
}

std::string_view view_of(const TorchText& text) {
  const char* data = "";
  std::size_t size = 0;
  torch_abi().torch_string_c_str(text.get(), &data);
  torch_abi().torch_string_length(text.get(), &size);
  return {data, size};
}

std::optional<TorchSlot> TorchArguments::optional() noexcept {
  auto* const slot = pointer<TorchSlot>(*next_++);
  if (slot == nullptr) return std::nullopt;
  const TorchSlot value = *slot;
  if (torch_abi().torch_delete_stable_ivalue != nullptr) {
    torch_abi().torch_delete_stable_ivalue(slot);
  } else {
    delete slot;  // as PyTorch's own headers do before 2.13
  }
  return value;
}

}  // namespace kiln::python
