// Small checks shared by the operations. Messages are built out of line, only when they are thrown.
#pragma once

#include <initializer_list>
#include <string>

#include "jit/op/overlap.h"
#include "kiln/error.h"
#include "kiln/tensor.h"

namespace kiln {

// The operation and argument that a message is about.
struct Subject {
  const char* op;    // "flash_attention"
  const char* name;  // "q"
};

[[noreturn]] void throw_value(Subject subject, const std::string& what);
[[noreturn]] void throw_type(Subject subject, const std::string& what);
std::string shape_text(const TensorView& tensor);  // "[2, 128, 8, 64]"
std::string strides_text(const TensorView& tensor);
std::string number_text(double number);  // "0.5", "1e+30"

// What the checks below throw.
[[noreturn]] void refuse_device(Subject subject, const TensorView& tensor, int ordinal);
[[noreturn]] void refuse_view(Subject subject, const TensorView& tensor);
[[noreturn]] void refuse_rank(Subject subject, const TensorView& tensor, int rank,
                              const char* layout);
[[noreturn]] void refuse_dtype(Subject subject, const TensorView& tensor, DType expected,
                               const char* why);
[[noreturn]] void refuse_float(Subject subject, const TensorView& tensor);
[[noreturn]] void refuse_shape(Subject subject, const TensorView& tensor,
                               std::initializer_list<std::int64_t> shape);
[[noreturn]] void refuse_last_stride(Subject subject, const TensorView& tensor);
[[noreturn]] void refuse_data(Subject subject, const TensorView& tensor);
[[noreturn]] void refuse_reach(Subject subject, const TensorView& tensor);
[[noreturn]] void refuse_repeats(Subject subject, const TensorView& tensor);

// An option whose number is none of its type, as a cast can make.
template <class Option>
void check_option(Subject subject, Option value, Option last, const char* type) {
  if (value <= last) [[likely]]
    return;
  throw_value(subject, std::string("must be a value of ") + type + ", got " +
                           std::to_string(static_cast<int>(value)));
}

// A rank that a view can have, and no negative size: what every other check relies on.
inline void check_view(Subject subject, const TensorView& tensor) {
  bool sound = tensor.rank >= 0 && tensor.rank <= kMaxRank;
  std::int64_t sizes = 0;
  for (int i = 0; sound && i < tensor.rank; ++i) sizes |= tensor.shape[i];
  sound = sound && sizes >= 0;
  if (!sound) [[unlikely]]
    refuse_view(subject, tensor);
}

// check_device for what is not simply on the right CUDA device: host memory goes to the emulated
// device where that is chosen, anything else is refused.
int check_other_device(Subject subject, const TensorView& tensor, int ordinal);

// On a device, and on that of `ordinal` when it is not negative; returns the ordinal.
inline int check_device(Subject subject, const TensorView& tensor, int ordinal) {
  const bool there = tensor.given() && tensor.device_type == DeviceType::cuda &&
                     (ordinal < 0 || tensor.device_ordinal == ordinal);
  if (!there) [[unlikely]]
    return check_other_device(subject, tensor, ordinal);
  return tensor.device_ordinal;
}
// What comes first for each tensor of a call. As check_device.
inline int check_tensor(Subject subject, const TensorView& tensor, int ordinal) {
  check_view(subject, tensor);
  return check_device(subject, tensor, ordinal);
}
inline void check_rank(Subject subject, const TensorView& tensor, int rank, const char* layout) {
  if (tensor.rank != rank) [[unlikely]]
    refuse_rank(subject, tensor, rank, layout);
}
inline void check_dtype(Subject subject, const TensorView& tensor, DType expected,
                        const char* why) {
  if (tensor.dtype != expected) [[unlikely]]
    refuse_dtype(subject, tensor, expected, why);
}
inline void check_last_stride(Subject subject, const TensorView& tensor) {
  const int last = tensor.rank - 1;  // -1: a single element, whose rank the caller refuses
  const bool unit = last < 0 || tensor.shape[last] <= 1 || tensor.strides[last] == 1;
  if (!unit) [[unlikely]]
    refuse_last_stride(subject, tensor);
}
inline bool is_empty(const TensorView& tensor) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 0) return true;
  }
  return false;
}
// Whether the distance from the first element to the last, in bytes, is below 2^62, so that it can
// be computed with. Exact, for sizes and strides that inside_address_space() does not settle.
bool inside_address_space_exactly(const TensorView& tensor);
inline bool inside_address_space(const TensorView& tensor) {
  std::int64_t sizes = 0, strides = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    sizes |= tensor.shape[i];
    strides |= tensor.strides[i] ^ (tensor.strides[i] >> 63);
  }
  // At most five products below 2^56, of elements of at most 8 bytes.
  if ((sizes >> 25 | strides >> 31) == 0) [[likely]]
    return true;
  return inside_address_space_exactly(tensor);
}
// Memory at a multiple of the element's size; none only where nothing is read or when
// `may_be_null`.
inline void check_data(Subject subject, const TensorView& tensor, bool may_be_null) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  const auto size = static_cast<unsigned>(size_of(tensor.dtype));  // a power of two
  const bool sound = address != 0 ? (address & (size - 1)) == 0 : may_be_null || is_empty(tensor);
  if (!sound) [[unlikely]]
    refuse_data(subject, tensor);
  if (!inside_address_space(tensor)) [[unlikely]]
    refuse_reach(subject, tensor);
}
// A result may not be written twice to one place.
inline void check_written(Subject subject, const TensorView& tensor) {
  if (!is_nested(tensor) && repeats_elements(tensor)) [[unlikely]]
    refuse_repeats(subject, tensor);
}
inline void check_shape(Subject subject, const TensorView& tensor,
                        std::initializer_list<std::int64_t> shape) {
  bool same = tensor.rank == static_cast<int>(shape.size());
  for (int i = 0; same && i < tensor.rank; ++i) same = tensor.shape[i] == shape.begin()[i];
  if (!same) [[unlikely]]
    refuse_shape(subject, tensor, shape);
}

inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
inline bool is_f8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }
inline bool is_quantized(DType dtype) { return is_f8(dtype) || dtype == DType::i8; }
inline bool is_float(DType dtype) { return is_half(dtype) || dtype == DType::f32; }

inline void check_float(Subject subject, const TensorView& tensor) {
  if (!is_float(tensor.dtype)) [[unlikely]]
    refuse_float(subject, tensor);
}

inline bool is_aligned(const TensorView& tensor, int bytes) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

// Returns 0 for a dimension of size 1, which may have any stride, and for one that is not there.
inline std::int64_t dimension_stride(const TensorView& tensor, int dimension) {
  const bool is_used = dimension < tensor.rank && tensor.shape[dimension] > 1;
  return is_used ? tensor.strides[dimension] : 0;
}

// Tells whether every row of the tensor begins at a multiple of `bytes`, so that it may be read or
// written by so many at once.
inline bool rows_admit(const TensorView& tensor, int bytes) {
  const int size = size_of(tensor.dtype);
  bool admits = is_aligned(tensor, bytes);
  for (int i = 0; i < tensor.rank - 1; ++i) {
    admits = admits && dimension_stride(tensor, i) * size % bytes == 0;
  }
  return admits;
}

// Makes a result of the view's shape, dtype and device: contiguous, and without memory yet.
inline TensorView result_like(TensorView view) {
  view.data = nullptr;
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

}  // namespace kiln
