// The entries of jit.rms_norm and jit.layer_norm. The two differ in their tensors and in the
// function that takes them, which the caller gives.
#pragma once

#include <array>

#include "arguments.h"
#include "errors.h"
#include "kiln/norm.h"
#include "norm_options.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {

// One call, read from its Python arguments.
template <class Signature>
struct NormCall {
  typename Signature::template Tensors<TensorArgument> tensors;
  NormOptions options;
  TensorIntake intake;
  DType out_dtype = DType::none;

  NormCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    read_numbers<Signature>(slots, options);
    if (PyObject* const name = slots[Signature::kActivation]; is_given(name)) {
      constexpr Subject subject = subject_of<Signature>(Signature::kActivation);
      options.activation = norm_activation(string_argument(name, subject), subject);
    }
    out_dtype =
        dtype_argument(slots[Signature::kOutDtype], subject_of<Signature>(Signature::kOutDtype));
    intake.read(tensors.all);
    options.residual = tensors.residual().view;
    options.residual_out = tensors.residual_out().view;
    check_out_dtype(Signature::kOp, out_dtype, tensors.out().view);
  }

  TensorView out_shape() const { return norm_output(tensors.x().view, out_dtype); }
};

// Calls `compute(tensors, options, stream)`; returns a new reference to `out`.
template <class Signature, class Compute>
PyObject* norm_entry(PyObject* const* args, Py_ssize_t count, PyObject* keywords,
                     Compute&& compute) {
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    NormCall<Signature> call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, options, intake, out_dtype] = call;
    py::object out =
        given_or_new(intake, tensors.x(), tensors.out(), [&] { return call.out_shape(); });
    CallWorkspace workspace(Signature::kOp, tensors.x(), intake);
    options.workspace = workspace.callback();
    compute(tensors, options, intake.stream());
    intake.finish();
    return out.release().ptr();
  });
}

// Returns a new reference to the text of `explain(tensors, options)`.
template <class Signature, class Explain>
PyObject* explain_norm_entry(PyObject* const* args, Py_ssize_t count, PyObject* keywords,
                             Explain&& explain) {
  return guarded([&]() -> PyObject* {
    NormCall<Signature> call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    set_default_view(call.intake, call.tensors.out(), [&] { return call.out_shape(); });
    return py::str(explain(call.tensors, call.options)).release().ptr();
  });
}

}  // namespace kiln::python
