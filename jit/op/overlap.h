// Whether a call writes memory that it also reads, or writes twice: what the kernel would leave
// there depends on the order in which its threads happen to run. Such calls are refused where
// addresses and strides prove that an element is shared; slices of one buffer that interleave
// without a common element pass.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "jit/op/arguments.h"
#include "kiln/tensor.h"

namespace kiln {

// What a call does with a tensor. replaceable: it is read, and a result may take its place, because
// the kernel reads each element before it writes the same element of the result.
enum class Use : std::uint8_t { read, replaceable, written };

struct CallTensor {
  const char* name;  // in messages
  const TensorView* view;
  Use use;
};

// The tensors of a call, in Plan::launch's order. Views and names stay the caller's.
class CallTensors {
 public:
  CallTensors() {}  // 1536 bytes that nobody reads before they are written
  CallTensors(const CallTensors& other) { *this = other; }
  CallTensors& operator=(const CallTensors& other) {
    count_ = other.count_;
    std::copy_n(other.tensors_.begin(), count_, tensors_.begin());
    return *this;
  }

  // Requires: fewer than CallArguments::kMaxPointers so far.
  void add(const CallTensor& tensor) { tensors_[count_++] = tensor; }
  std::span<const CallTensor> all() const { return {tensors_.data(), count_}; }

 private:
  std::array<CallTensor, CallArguments::kMaxPointers> tensors_;
  std::size_t count_ = 0;
};

// Whether an element of `a` and one of `b` are proven to have a byte in common.
bool shares_elements(const TensorView& a, const TensorView& b);
// Whether two elements of the tensor are proven to be at one place.
bool repeats_elements(const TensorView& tensor);

// Whether each dimension steps over all that the dimensions behind it reach, as in contiguous
// tensors and slices of them: then no element repeats.
inline bool is_nested(const TensorView& tensor) {
  bool nested = true;
  std::int64_t reach = 0;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    if (tensor.shape[i] <= 1) continue;
    const std::int64_t stride = tensor.strides[i] < 0 ? -tensor.strides[i] : tensor.strides[i];
    nested = nested && stride > reach;
    reach += (tensor.shape[i] - 1) * stride;
  }
  return nested;
}

inline bool ranges_meet(const runtime::MemorySpan& a, const runtime::MemorySpan& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

// Whether the range of addresses of something written meets another's. Most calls end here.
inline bool written_ranges_meet(std::span<const runtime::MemorySpan> spans) {
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (!spans[i].written) continue;
    for (std::size_t j = 0; j < spans.size(); ++j) {
      if (ranges_meet(spans[i], spans[j]) && i != j) return true;
    }
  }
  return false;
}

// Throws std::invalid_argument where a written tensor shares an element with another that it may
// not replace. `op`: the operation that the message names. `spans`: of the tensors, in their order.
void refuse_overlaps(const char* op, std::span<const CallTensor> tensors,
                     std::span<const runtime::MemorySpan> spans);

}  // namespace kiln
