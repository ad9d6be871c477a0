// New tensors in the caller's framework, from its allocator.
#pragma once

#include <memory>

#include "kiln/kiln.h"
#include "tensor.h"

namespace kiln::python {

// Allocates a contiguous tensor of the view's shape, dtype and device in the framework of `like`
// and sets the view's data. Throws TypeError, asking for `argument=`, when the framework has no
// way to allocate.
py::object allocate_like(const TensorArgument& like, TensorView& view, Subject subject);

// Asks for the shape of an output that is not given.
template <class Shape>
void set_default_view(const TensorIntake& intake, TensorArgument& argument, Shape&& shape) {
  if (argument.given()) return;
  argument.view = shape();
  argument.view.device_type = intake.device_type();
  argument.view.device_ordinal = intake.device_ordinal();
}

// The tensor that the caller gave, or a new one.
template <class Shape>
py::object given_or_new(TensorIntake& intake, const TensorArgument& like, TensorArgument& argument,
                        Shape&& shape) {
  if (argument.given()) return py::reinterpret_borrow<py::object>(argument.object);
  set_default_view(intake, argument, shape);
  return intake.allocate(like, argument.view, argument.name);
}

struct EndManaged {
  void operator()(DlManagedTensorVersioned* managed) const { managed->deleter(managed); }
};
using ManagedTensor = std::unique_ptr<DlManagedTensorVersioned, EndManaged>;

// The workspace of one call, from the allocator of `like`'s framework, which orders its reuse after
// the call's work on the stream. None where a framework has no allocator for others: the call then
// runs unsplit.
class CallWorkspace {
 public:
  CallWorkspace(const char* op, const TensorArgument& like, TensorIntake& intake)
      : op_(op), like_(like), intake_(intake) {}
  Workspace callback();

 private:
  void* allocate(std::size_t bytes);

  const char* op_;
  const TensorArgument& like_;
  TensorIntake& intake_;
  ManagedTensor managed_;  // where the framework has an exchange table: no object is made of it
  py::object memory_;
};

}  // namespace kiln::python
