// jit.merge_states and its explanation.
#include <array>

#include "arguments.h"
#include "errors.h"
#include "generated/merge_states.h"
#include "kiln/merge_states.h"
#include "merge_states_options.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments.
struct MergeCall {
  using Signature = MergeStatesSignature;
  Signature::Tensors<TensorArgument> tensors;
  MergeStatesOptions options;
  TensorIntake intake;
  bool returns_lse = false;

  MergeCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    const auto text = [&](Signature::Slot slot) {
      return string_argument(slots[slot], subject_of<Signature>(slot));
    };
    if (slots[Signature::kBase] != nullptr) options.base = lse_base(text(Signature::kBase));
    if (slots[Signature::kLayout] != nullptr) options.layout = lse_layout(text(Signature::kLayout));
    constexpr Subject asks = subject_of<Signature>(Signature::kReturnLse);
    returns_lse = bool_argument(slots[Signature::kReturnLse], false, asks);
    intake.read(tensors.all);
    options.sinks = tensors.sinks().view;
  }

  TensorView out_shape() const { return merge_states_output(tensors.outs().view); }
  TensorView lse_shape() const { return merge_states_lse(tensors.lses().view); }
};

}  // namespace

PyObject* merge_states_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                             PyObject* keywords) {
  using Signature = MergeStatesSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    MergeCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, options, intake, returns_lse] = call;
    py::object out =
        given_or_new(intake, tensors.outs(), tensors.out(), [&] { return call.out_shape(); });
    py::object lse;
    if (returns_lse || tensors.lse().given()) {
      lse = given_or_new(intake, tensors.outs(), tensors.lse(), [&] { return call.lse_shape(); });
    }
    merge_states(tensors.outs().view, tensors.lses().view, tensors.out().view, tensors.lse().view,
                 options, intake.stream());
    intake.finish();
    if (!returns_lse) return out.release().ptr();
    return PyTuple_Pack(2, out.ptr(), lse.ptr());
  });
}

PyObject* explain_merge_states_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                     PyObject* keywords) {
  using Signature = MergeStatesSignature;
  return guarded([&]() -> PyObject* {
    MergeCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, options, intake, returns_lse] = call;
    set_default_view(intake, tensors.out(), [&] { return call.out_shape(); });
    if (returns_lse) set_default_view(intake, tensors.lse(), [&] { return call.lse_shape(); });
    return py::str(explain_merge_states(tensors.outs().view, tensors.lses().view,
                                        tensors.out().view, tensors.lse().view, options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
