// jit.moe_unpermute and its explanation.
#include <array>

#include "arguments.h"
#include "errors.h"
#include "generated/moe_unpermute.h"
#include "kiln/moe.h"
#include "moe_options.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments.
struct UnpermuteCall {
  using Signature = MoeUnpermuteSignature;
  Signature::Tensors<TensorArgument> tensors;
  TensorIntake intake;
  DType out_dtype = DType::none;

  UnpermuteCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    out_dtype =
        dtype_argument(slots[Signature::kOutDtype], subject_of<Signature>(Signature::kOutDtype));
    intake.read(tensors.all);
    check_out_dtype(Signature::kOp, out_dtype, tensors.out().view);
  }

  TensorView out_shape() const {
    return unpermuted_rows(tensors.y().view, tensors.inverse().view, out_dtype);
  }
};

}  // namespace

PyObject* moe_unpermute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                              PyObject* keywords) {
  using Signature = MoeUnpermuteSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    UnpermuteCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, intake, out_dtype] = call;
    py::object out =
        given_or_new(intake, tensors.y(), tensors.out(), [&] { return call.out_shape(); });
    moe_unpermute(tensors.y().view, tensors.inverse().view, tensors.weights().view,
                  tensors.out().view, intake.stream());
    intake.finish();
    return out.release().ptr();
  });
}

PyObject* explain_moe_unpermute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                      PyObject* keywords) {
  using Signature = MoeUnpermuteSignature;
  return guarded([&]() -> PyObject* {
    UnpermuteCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, intake, out_dtype] = call;
    set_default_view(intake, tensors.out(), [&] { return call.out_shape(); });
    return py::str(explain_moe_unpermute(tensors.y().view, tensors.inverse().view,
                                         tensors.weights().view, tensors.out().view))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
