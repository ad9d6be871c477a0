#include "jit/op/checks.h"

#include <algorithm>
#include <cstdio>

#include "jit/op/device_choice.h"

namespace kiln {

namespace {
std::string prefix(Subject subject) { return std::string(subject.op) + ": " + subject.name + " "; }

std::string numbers_text(const std::int64_t* numbers, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}
}  // namespace

void throw_value(Subject subject, const std::string& what) {
  throw std::invalid_argument(prefix(subject) + what);
}
void throw_type(Subject subject, const std::string& what) {
  throw TypeError(prefix(subject) + what);
}

std::string shape_text(const TensorView& tensor) { return numbers_text(tensor.shape, tensor.rank); }
std::string strides_text(const TensorView& tensor) {
  return numbers_text(tensor.strides, tensor.rank);
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

int check_other_device(Subject subject, const TensorView& tensor, int ordinal) {
  const bool is_host = tensor.given() && tensor.device_type == DeviceType::cpu;
  if (is_host && ordinal < 0 && emulates_host_tensors()) return chosen_emulator().info().ordinal;
  if (is_host && is_emulated(ordinal)) return ordinal;
  refuse_device(subject, tensor, ordinal);
}

void refuse_device(Subject subject, const TensorView& tensor, int ordinal) {
  if (!tensor.given()) throw_type(subject, "is missing");
  const bool is_host = tensor.device_type == DeviceType::cpu;
  if (is_host && ordinal < 0) {
    throw_type(
        subject,
        "is in host memory; move it to a GPU first (cudaMemcpy, or tensor.cuda() in PyTorch), "
        "or choose the emulated device (KILN_DEVICE=emulator, set_device() in C++ or "
        "kiln.device(\"emulator\") in Python)");
  }
  if (is_host) {
    throw_type(subject,
               "is in host memory but the first tensor is on cuda:" + std::to_string(ordinal) +
                   "; move it there (cudaMemcpy, or tensor.cuda() in PyTorch)");
  }
  if (is_emulated(ordinal)) {
    throw_type(subject, "is on cuda:" + std::to_string(tensor.device_ordinal) +
                            " but the first tensor is in host memory; move all of them to the GPU "
                            "(cudaMemcpy, or tensor.cuda() in PyTorch) or all to the host");
  }
  throw_value(subject, "is on cuda:" + std::to_string(tensor.device_ordinal) +
                           " but the first tensor is on cuda:" + std::to_string(ordinal) +
                           "; all tensors of a call must be on one device");
}

void refuse_view(Subject subject, const TensorView& tensor) {
  if (tensor.rank < 0 || tensor.rank > kMaxRank) {
    throw_value(subject, "must have a rank of 0 to " + std::to_string(kMaxRank) + ", got " +
                             std::to_string(tensor.rank));
  }
  throw_value(subject, "must have sizes of 0 or more, got shape " + shape_text(tensor));
}

void refuse_rank(Subject subject, const TensorView& tensor, int rank, const char* layout) {
  throw_value(subject, "must have " + std::to_string(rank) +
                           (rank == 1 ? " dimension " : " dimensions ") + layout + ", got " +
                           shape_text(tensor));
}

void refuse_dtype(Subject subject, const TensorView& tensor, DType expected, const char* why) {
  std::string text = std::string("must be ") + name(expected) + why + ", got " + name(tensor.dtype);
  const auto is_index = [](DType dtype) { return dtype == DType::i32 || dtype == DType::i64; };
  if (is_index(expected) && is_index(tensor.dtype)) {  // frameworks count in int64
    text += std::string("; convert it, for example with tensor.to(torch.") + name(expected) + ")";
  }
  throw_type(subject, text);
}

void refuse_float(Subject subject, const TensorView& tensor) {
  throw_type(subject,
             std::string("must be float16, bfloat16 or float32, got ") + name(tensor.dtype));
}

void refuse_last_stride(Subject subject, const TensorView& tensor) {
  throw_value(subject, "must be contiguous in its last dimension (stride 1), got stride " +
                           std::to_string(tensor.strides[tensor.rank - 1]) +
                           "; call .contiguous() or numpy.ascontiguousarray()");
}

void refuse_data(Subject subject, const TensorView& tensor) {
  if (tensor.data == nullptr) {
    throw_value(subject, "has no memory: its data is null and its shape " + shape_text(tensor));
  }
  throw_value(subject, "must lie at a multiple of " + std::to_string(size_of(tensor.dtype)) +
                           " bytes, the size of a " + name(tensor.dtype) + " element");
}

bool inside_address_space_exactly(const TensorView& tensor) {
  if (is_empty(tensor)) return true;
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  std::int64_t elements = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    std::int64_t distance = 0;
    if (tensor.shape[i] <= 1) continue;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &distance) ||
        distance <= -kLimit || distance >= kLimit) {
      return false;
    }
    elements += distance < 0 ? -distance : distance;
    if (elements >= kLimit) return false;
  }
  return elements < kLimit / std::max(size_of(tensor.dtype), 1);
}

void refuse_reach(Subject subject, const TensorView& tensor) {
  throw_value(subject, "has the shape " + shape_text(tensor) + " and the strides " +
                           strides_text(tensor) +
                           ", which reach further than 2^62 bytes; correct its strides");
}

void refuse_repeats(Subject subject, const TensorView& tensor) {
  throw_value(subject,
              "is written, so no two of its elements may share memory, as they do with shape " +
                  shape_text(tensor) + " and strides " + strides_text(tensor) +
                  "; pass a tensor whose elements lie apart, such as a contiguous one");
}

void refuse_shape(Subject subject, const TensorView& tensor,
                  std::initializer_list<std::int64_t> shape) {
  TensorView expected;
  for (std::int64_t size : shape) expected.shape[expected.rank++] = size;
  throw_value(subject, "must have shape " + shape_text(expected) + ", got " + shape_text(tensor));
}

}  // namespace kiln
