// TensorView: a view of memory that belongs to the caller.
#pragma once

#include <cstdint>

#include "kiln/export.h"

namespace KILN_PUBLIC kiln {

// f8_e4m3 is PyTorch's float8_e4m3fn: it has no infinity, and one NaN of each sign. f8_e8m0 is its
// float8_e8m0fnu, for scales alone: the byte x is 2^(x - 127), and 255 is NaN.
enum class DType : std::uint8_t {
  none,
  f16,
  bf16,
  f32,
  f64,
  i32,
  i64,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2,
  i8,
  u64,
  f8_e8m0,
  other
};
const char* name(DType dtype);  // "float16", "bfloat16", "float8_e4m3fn", …
// Bytes of an element; 0 for none and other.
constexpr int size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
    case DType::u64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
    case DType::boolean:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::i8:
    case DType::f8_e8m0:
      return 1;
    case DType::none:
    case DType::other:
      return 0;
  }
  return 0;
}

// Tensors in host memory (cpu) are computed in place on the emulated device; see set_device in
// kiln/control.h. Their device_ordinal is ignored.
enum class DeviceType : std::uint8_t { cpu, cuda };

inline constexpr int kMaxRank = 5;

// Shapes and strides count elements. A default-constructed view means that no tensor is given.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::none;
  DeviceType device_type = DeviceType::cuda;
  int device_ordinal = 0;
  int rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t strides[kMaxRank] = {};

  bool given() const { return dtype != DType::none; }
};

// A contiguous view in row-major order.
template <class... Sizes>
TensorView contiguous_view(void* data, DType dtype, int device_ordinal, Sizes... sizes) {
  static_assert(sizeof...(sizes) <= kMaxRank, "contiguous_view: at most 5 dimensions");
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.device_ordinal = device_ordinal;
  ((view.shape[view.rank++] = static_cast<std::int64_t>(sizes)), ...);
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

}  // namespace KILN_PUBLIC kiln
