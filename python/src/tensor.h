// Python tensors to views of device or host memory, for the length of one call (or of a bound
// variant).
#pragma once

#include <pybind11/pybind11.h>

#include <span>
#include <string>
#include <vector>

#include "frameworks.h"
#include "kiln/tensor.h"

namespace kiln::python {

// One tensor argument. `object` is borrowed; null or None means "not given".
struct TensorArgument {
  const char* name;
  PyObject* object;
  bool written = false;
  Framework framework{};
  TensorView view{};

  bool given() const { return object != nullptr && object != Py_None; }
};

// The tensors of one call: read, on one device or all in host memory (for the emulated device),
// with the stream that the work belongs to. Keeps what their producers handed out alive.
class TensorIntake {
 public:
  explicit TensorIntake(const char* op) : op_(op) {}

  // Fills the views of the given arguments. Throws TypeError and ValueError naming the cure:
  // host memory without the emulated device, several devices, inputs that require grad.
  void read(std::span<TensorArgument> arguments);

  // The caller's current stream on the tensors' device.
  void* stream() const { return stream_; }
  int device_ordinal() const { return device_ordinal_; }
  DeviceType device_type() const { return is_host_ ? DeviceType::cpu : DeviceType::cuda; }

  std::vector<py::object> release_owners() { return std::move(owners_); }

 private:
  void refuse_grad(std::span<TensorArgument> arguments) const;
  void find_stream(std::span<TensorArgument> arguments);
  void read_one(TensorArgument& argument);
  void read_exchange(TensorArgument& argument);
  void read_dlpack(TensorArgument& argument);
  void read_array_interface(TensorArgument& argument);
  void read_capsule(TensorArgument& argument, const py::object& capsule);
  void set_view(TensorArgument& argument, const DlTensor& tensor);
  void enter_device(const TensorArgument& argument, DlDevice device);
  [[noreturn]] void refuse_device(const TensorArgument& argument, DlDevice device) const;
  py::object export_dlpack(const TensorArgument& argument) const;

  const char* op_;
  void* stream_ = nullptr;
  int device_ordinal_ = -1;
  bool is_host_ = false;
  const char* device_argument_ = nullptr;  // the argument that set device_ordinal_
  bool has_stream_ = false;
  std::vector<py::object> owners_;
};

}  // namespace kiln::python
