// Where the tensors of one call lie: on one device, or all in host memory.
#pragma once

#include <string>

#include "dlpack.h"
#include "frameworks.h"
#include "kiln/tensor.h"

namespace kiln::python {

// What becomes of NumPy arrays where a GPU computes: they are refused, or shown as if they lay on
// it (for a call that is only explained), or copied there (see staging.h).
enum class HostArrays { refused, shown, copied };

// It holds what Placement needs to know of a tensor besides its memory.
struct PlacedTensor {
  const char* argument;
  bool is_numpy = false;
};

// The first tensor decides, the others must lie there too. Knows nothing of Python's objects: the
// operators' kernels use it without the GIL.
class Placement {
 public:
  explicit Placement(const char* op, HostArrays host_arrays = HostArrays::refused)
      : op_(op), host_arrays_(host_arrays) {}

  // Both throw TypeError and ValueError naming the cure: host memory without the emulated device,
  // several devices, dtypes and ranks that Kiln does not know.
  void enter(PlacedTensor tensor, DlDevice device);
  void set_view(PlacedTensor tensor, const DlTensor& memory, TensorView& view);

  bool is_host() const { return is_host_; }    // emulated
  bool is_array() const { return is_array_; }  // NumPy arrays, on their way to a GPU
  HostArrays host_arrays() const { return host_arrays_; }
  int ordinal() const { return ordinal_; }
  DeviceType device_type() const { return is_host_ ? DeviceType::cpu : DeviceType::cuda; }

 private:
  bool belongs_here(PlacedTensor tensor, DlDevice device) const;
  [[noreturn]] void refuse(PlacedTensor tensor, DlDevice device) const;

  const char* op_;
  HostArrays host_arrays_;
  bool is_host_ = false;
  bool is_array_ = false;
  int ordinal_ = -1;
  const char* leader_ = nullptr;  // the argument that set the place
};

// Row-major strides, as of a tensor that names none.
void set_contiguous_strides(int rank, const std::int64_t* shape, std::int64_t* strides);

[[noreturn]] void refuse_grad(Subject subject);
[[noreturn]] void refuse_negative(Subject subject);

}  // namespace kiln::python
