// jit.append_kv and its explanation.
#include <array>

#include "append_kv_options.h"
#include "arguments.h"
#include "errors.h"
#include "generated/append_kv.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments. It takes no arrays of the host to a GPU and back: all
// of a cache would travel for the few slots that are written.
struct AppendCall {
  using Signature = AppendKvSignature;
  Signature::Tensors<TensorArgument> tensors;
  AppendKvOptions options;
  TensorIntake intake;

  AppendCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    read_numbers<Signature>(slots, options);
    intake.read(tensors.all);
  }

  TensorView query_shape() const { return append_kv_query_out(tensors.query().view); }
};

}  // namespace

PyObject* append_kv_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  using Signature = AppendKvSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    AppendCall call(slots_of<Signature>(args, count, keywords), HostArrays::refused);
    auto& [tensors, options, intake] = call;
    py::object out = py::none();
    if (tensors.query().given()) {
      out = given_or_new(intake, tensors.query(), tensors.query_out(),
                         [&] { return call.query_shape(); });
    }
    set_append_options(tensors, options);
    append_kv(tensors.key().view, tensors.value().view, tensors.k_cache().view,
              tensors.v_cache().view, tensors.slot_mapping().view, options, intake.stream());
    intake.finish();
    return out.release().ptr();
  });
}

PyObject* explain_append_kv_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                  PyObject* keywords) {
  using Signature = AppendKvSignature;
  return guarded([&]() -> PyObject* {
    AppendCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, options, intake] = call;
    if (tensors.query().given()) {
      set_default_view(intake, tensors.query_out(), [&] { return call.query_shape(); });
    }
    set_append_options(tensors, options);
    return py::str(explain_append_kv(tensors.key().view, tensors.value().view,
                                     tensors.k_cache().view, tensors.v_cache().view,
                                     tensors.slot_mapping().view, options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
