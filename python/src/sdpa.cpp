// jit.scaled_dot_product_attention: PyTorch's arguments, the output, the call.
#include <array>

#include "arguments.h"
#include "entries.h"
#include "errors.h"
#include "kiln/control.h"
#include "kiln/kiln.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

constexpr const char* kOp = kSdpaOp;

// Slots of the call, in the order of kNames; the first six may be positional.
enum Slot { kQuery, kKey, kValue, kAttnMask, kDropoutP, kIsCausal, kScale, kEnableGqa, kSlots };
constexpr std::array<const char*, kSlots> kNames = {
    "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"};

constexpr Subject subject(Slot slot) { return {kOp, kNames[slot]}; }

struct SdpaArguments {
  std::array<TensorArgument, 4> tensors;
  SdpaOptions options;
  TensorIntake intake;

  SdpaArguments(PyObject* const* args, Py_ssize_t count, PyObject* keywords, HostArrays host_arrays)
      : intake(kOp, host_arrays) {
    static const Parameters parameters(kOp, 6, 3, kNames);
    std::array<PyObject*, kSlots> slots{};
    parameters.parse(args, count, keywords, slots.data());
    for (int i = 0; i < 4; ++i) {
      tensors[i] = {kNames[i], slots[i]};
      if (i < 3 && slots[i] == Py_None) throw_type({kOp, kNames[i]}, "must be a tensor, got None");
    }
    if (float_argument(slots[kDropoutP], 0.0f, subject(kDropoutP)) != 0.0f) {
      refuse_dropout(repr_of(slots[kDropoutP]));
    }
    options.is_causal = bool_argument(slots[kIsCausal], false, subject(kIsCausal));
    if (is_given(slots[kScale])) options.scale = float_argument(slots[kScale], 0, subject(kScale));
    options.enable_gqa = bool_argument(slots[kEnableGqa], false, subject(kEnableGqa));
    intake.read(tensors);
  }

  const TensorArgument& query() const { return tensors[kQuery]; }
  TensorView output_view() const {
    TensorView view = scaled_dot_product_attention_output(query().view, tensors[kKey].view,
                                                          tensors[kValue].view, options.enable_gqa);
    view.device_ordinal = intake.device_ordinal();
    return view;
  }
};

}  // namespace

PyObject* sdpa_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded_or_traced(kOp, args, count, keywords, [&]() -> PyObject* {
    SdpaArguments call(args, count, keywords, HostArrays::copied);
    TensorView view = call.output_view();
    py::object out = call.intake.allocate(call.query(), view, "out");
    CallWorkspace workspace(kOp, call.query(), call.intake);
    call.options.workspace = workspace.callback();
    scaled_dot_product_attention(call.query().view, call.tensors[kKey].view,
                                 call.tensors[kValue].view, call.tensors[kAttnMask].view, view,
                                 call.options, call.intake.stream());
    call.intake.finish();
    return out.release().ptr();
  });
}

PyObject* explain_sdpa_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                             PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    const SdpaArguments call(args, count, keywords, HostArrays::shown);
    return py::str(explain_scaled_dot_product_attention(
                       call.query().view, call.tensors[kKey].view, call.tensors[kValue].view,
                       call.tensors[kAttnMask].view, call.output_view(), call.options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
