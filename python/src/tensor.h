// Python tensors to views of device or host memory, for the length of one call (or of a bound
// variant).
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frameworks.h"
#include "kiln/tensor.h"
#include "placement.h"
#include "staging.h"

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

// Throws TypeError where one of these is None.
void require(const char* op, std::span<const TensorArgument> arguments);

// The tensors among a call's arguments; those that it cannot do without are there.
template <class Signature>
typename Signature::template Tensors<TensorArgument> tensors_of(
    const std::array<PyObject*, Signature::kSlots>& slots) {
  auto tensors = Signature::template tensors<TensorArgument>(slots);
  require(Signature::kOp, std::span(tensors.all).first(Signature::kRequiredTensors));
  return tensors;
}

// How long the memory of the tensors is needed. For one call, whoever passes a tensor keeps it.
// What is kept longer is read through an export, which owns the memory: the tensor object alone
// would not do, because PyTorch can give it other memory (`tensor.data = ...`, `module.double()`).
enum class Needed { for_the_call, longer };

// The tensors of one call: read, on one device or all in host memory (for the emulated device, or
// to be copied), with the stream that the work belongs to. Keeps what their producers handed out
// alive.
class TensorIntake {
 public:
  explicit TensorIntake(const char* op, HostArrays host_arrays = HostArrays::refused,
                        Needed needed = Needed::for_the_call)
      : op_(op), place_(op, host_arrays), needed_(needed) {}
  ~TensorIntake();
  TensorIntake(const TensorIntake&) = delete;
  TensorIntake& operator=(const TensorIntake&) = delete;

  // Fills the views of the given arguments. Throws TypeError and ValueError naming the cure:
  // host memory without the emulated device, several devices, inputs that require grad.
  void read(std::span<TensorArgument> arguments);

  // A new output in the framework of `like`, which fills the view.
  py::object allocate(const TensorArgument& like, TensorView& view, const char* name);
  // Where the call's arrays are staged: device memory that no framework gives.
  StagedArrays* staged() { return staged_ ? &*staged_ : nullptr; }
  // Ends the call: outputs that are NumPy's or JAX's are there.
  void finish();

  // The caller's current stream on the tensors' device.
  void* stream() const { return stream_; }
  int device_ordinal() const { return place_.ordinal(); }
  DeviceType device_type() const { return place_.device_type(); }

  std::vector<py::object> release_owners() { return std::move(owners_); }

 private:
  void check_modes(std::span<const TensorArgument> arguments) const;
  void check_grad(std::span<TensorArgument> arguments) const;
  void find_stream(std::span<TensorArgument> arguments);
  void read_one(TensorArgument& argument);
  void read_exchange(TensorArgument& argument);
  void read_dlpack(TensorArgument& argument);
  void read_array_interface(TensorArgument& argument);
  void read_capsule(TensorArgument& argument, const py::object& capsule);
  void place_arrays(std::span<TensorArgument> arguments);
  void read_compact(TensorArgument& argument);
  py::object export_dlpack(const TensorArgument& argument) const;

  const char* op_;
  Placement place_;
  Needed needed_;
  void* stream_ = nullptr;
  bool waits_ = false;  // JAX gives memory away as if nothing ran on our stream
  std::optional<StagedArrays> staged_;
  bool has_stream_ = false;
  std::vector<py::object> owners_;
};

}  // namespace kiln::python
