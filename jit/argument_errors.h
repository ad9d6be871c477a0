// Small checks shared by the operations. Messages are built out of line, only when they are thrown.
#pragma once

#include <string>

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

// On a CUDA device, and on `ordinal` when that is not negative; returns the tensor's ordinal.
int check_device(Subject subject, const TensorView& tensor, int ordinal);
void check_rank(Subject subject, const TensorView& tensor, int rank, const char* layout);
void check_dtype(Subject subject, const TensorView& tensor, DType expected, const char* why);
void check_shape(Subject subject, const TensorView& tensor, std::initializer_list<std::int64_t> shape);
void check_last_stride(Subject subject, const TensorView& tensor);

inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
inline bool is_float(DType dtype) { return is_half(dtype) || dtype == DType::f32; }

inline bool is_aligned(const TensorView& tensor, int bytes) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

}  // namespace kiln
