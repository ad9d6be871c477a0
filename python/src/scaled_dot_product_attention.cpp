// jit.scaled_dot_product_attention: PyTorch's arguments, the output, the call.
#include <array>

#include "arguments.h"
#include "attention_options.h"
#include "errors.h"
#include "generated/scaled_dot_product_attention.h"
#include "kiln/control.h"
#include "kiln/kiln.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

using Signature = ScaledDotProductAttentionSignature;
using enum Signature::Slot;

constexpr Subject subject(Signature::Slot slot) { return subject_of<Signature>(slot); }

// One call, read from its Python arguments.
struct SdpaCall {
  Signature::Tensors<TensorArgument> tensors;
  SdpaOptions options;
  TensorIntake intake;

  SdpaCall(const std::array<PyObject*, kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    if (float_argument(slots[kDropoutP], 0.0f, subject(kDropoutP)) != 0.0f) {
      refuse_dropout(repr_of(slots[kDropoutP]));
    }
    options.is_causal = bool_argument(slots[kIsCausal], false, subject(kIsCausal));
    if (is_given(slots[kScale])) options.scale = float_argument(slots[kScale], 0, subject(kScale));
    options.enable_gqa = bool_argument(slots[kEnableGqa], false, subject(kEnableGqa));
    intake.read(tensors.all);
  }

  TensorView out_shape() const {
    TensorView view = scaled_dot_product_attention_output(tensors.query().view, tensors.key().view,
                                                          tensors.value().view, options.enable_gqa);
    view.device_ordinal = intake.device_ordinal();
    return view;
  }
};

}  // namespace

PyObject* scaled_dot_product_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                             PyObject* keywords) {
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    SdpaCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, options, intake] = call;
    TensorView view = call.out_shape();
    py::object out = intake.allocate(tensors.query(), view, "out");
    CallWorkspace workspace(Signature::kOp, tensors.query(), intake);
    options.workspace = workspace.callback();
    scaled_dot_product_attention(tensors.query().view, tensors.key().view, tensors.value().view,
                                 tensors.attn_mask().view, view, options, intake.stream());
    intake.finish();
    return out.release().ptr();
  });
}

PyObject* explain_scaled_dot_product_attention_entry(PyObject*, PyObject* const* args,
                                                     Py_ssize_t count, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    const SdpaCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    const auto& tensors = call.tensors;
    return py::str(explain_scaled_dot_product_attention(
                       tensors.query().view, tensors.key().view, tensors.value().view,
                       tensors.attn_mask().view, call.out_shape(), call.options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
