// jit.flash_attention: its arguments, its outputs, its call.
#include <array>
#include <string>

#include "arguments.h"
#include "entries.h"
#include "errors.h"
#include "kiln/control.h"
#include "kiln/kiln.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"
#include "variant.h"

namespace kiln::python {
namespace {

constexpr const char* kOp = kAttentionOp;

// Slots of the call, in the order of kNames.
enum Slot {
  kQ,
  kK,
  kV,
  kCausal,
  kWindow,
  kSoftcap,
  kScale,
  kSinks,
  kAlibi,
  kVariant,
  kLayout,
  kOut,
  kLse,
  kReturnLse,
  kSlots
};
constexpr std::array<const char*, kSlots> kNames = {
    "q",       "k",      "v",   "causal", "window",    "softcap", "scale", "sinks", "alibi_slopes",
    "variant", "layout", "out", "lse",    "return_lse"};

constexpr Subject subject(Slot slot) { return {kOp, kNames[slot]}; }

using Slots = std::array<PyObject*, kSlots>;

void read_window(PyObject* window, AttentionOptions& options) {
  if (window == nullptr) return;
  const bool is_pair =
      (PyTuple_Check(window) || PyList_Check(window)) && PySequence_Fast_GET_SIZE(window) == 2;
  if (!is_pair) refuse_window(py::cast<std::string>(py::repr(window)));
  set_window(options, int64_argument(PySequence_Fast_GET_ITEM(window, 0), subject(kWindow)),
             int64_argument(PySequence_Fast_GET_ITEM(window, 1), subject(kWindow)));
}

AttentionLayout read_layout(PyObject* object) {
  if (object == nullptr) return AttentionLayout::bshd;
  return attention_layout(string_argument(object, subject(kLayout)));
}

// One call, read from its Python arguments.
struct AttentionCall {
  std::array<TensorArgument, 7> tensors;
  AttentionOptions options;
  TensorIntake intake;
  bool returns_lse = false;

  TensorArgument& q() { return tensors[0]; }
  TensorArgument& k() { return tensors[1]; }
  TensorArgument& v() { return tensors[2]; }
  TensorArgument& out() { return tensors[3]; }
  TensorArgument& lse() { return tensors[4]; }

  AttentionCall(const Slots& slots, HostArrays host_arrays)
      : tensors{{{kNames[kQ], slots[kQ]},
                 {kNames[kK], slots[kK]},
                 {kNames[kV], slots[kV]},
                 {kNames[kOut], slots[kOut], true},
                 {kNames[kLse], slots[kLse], true},
                 {kNames[kSinks], slots[kSinks]},
                 {kNames[kAlibi], slots[kAlibi]}}},
        intake(kOp, host_arrays) {
    for (int i = 0; i < 3; ++i) {
      if (tensors[i].object == Py_None)
        throw_type({kOp, tensors[i].name}, "must be a tensor, got None");
    }
    options.causal = bool_argument(slots[kCausal], false, subject(kCausal));
    read_window(slots[kWindow], options);
    options.softcap = float_argument(slots[kSoftcap], 0.0f, subject(kSoftcap));
    if (is_given(slots[kScale])) options.scale = float_argument(slots[kScale], 0, subject(kScale));
    options.variant = variant_argument(slots[kVariant], subject(kVariant));
    options.layout = read_layout(slots[kLayout]);
    returns_lse = bool_argument(slots[kReturnLse], false, subject(kReturnLse));
    intake.read(tensors);
    if (intake.staged() != nullptr && options.variant && !options.variant->tensors().empty()) {
      throw_type(subject(kVariant),
                 "keeps tensors of a GPU, whose streams NumPy arrays are not ordered with; pass q, "
                 "k and v on the GPU too, for example with cupy.asarray(x)");
    }
    options.sinks = tensors[5].view;
    options.alibi_slopes = tensors[6].view;
  }

  TensorView output_view() {
    TensorView view = flash_attention_output(q().view, v().view);
    view.device_ordinal = intake.device_ordinal();
    return view;
  }
  TensorView lse_view() const { return lse_of(tensors[0].view, options.layout); }
};

Slots parse(PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  static const Parameters parameters(kOp, 3, 3, kNames);
  Slots slots{};
  parameters.parse(args, count, keywords, slots.data());
  return slots;
}

// The tensor that the caller gave, or a new one.
py::object given_or_new(AttentionCall& call, TensorArgument& argument, const TensorView& shape) {
  if (argument.given()) return py::reinterpret_borrow<py::object>(argument.object);
  argument.view = shape;
  return call.intake.allocate(call.q(), argument.view, argument.name);
}

}  // namespace

PyObject* flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                PyObject* keywords) {
  return guarded_or_traced(kOp, args, count, keywords, [&]() -> PyObject* {
    AttentionCall call(parse(args, count, keywords), HostArrays::copied);
    // The output's shape needs q's and v's ranks, so it is asked for before lse's is formed.
    py::object out =
        given_or_new(call, call.out(), call.out().given() ? TensorView{} : call.output_view());
    py::object lse;
    if (call.returns_lse || call.lse().given()) {
      lse = given_or_new(call, call.lse(), call.lse_view());
    }
    CallWorkspace workspace(kOp, call.q(), call.intake);
    call.options.workspace = workspace.callback();
    flash_attention(call.q().view, call.k().view, call.v().view, call.out().view, call.lse().view,
                    call.options, call.intake.stream());
    call.intake.finish();
    if (!call.returns_lse) return out.release().ptr();
    return PyTuple_Pack(2, out.ptr(), lse.ptr());
  });
}

PyObject* explain_flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                        PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    AttentionCall call(parse(args, count, keywords), HostArrays::shown);
    if (!call.out().given()) call.out().view = call.output_view();
    if (call.returns_lse && !call.lse().given()) call.lse().view = call.lse_view();
    return py::str(explain_flash_attention(call.q().view, call.k().view, call.v().view,
                                           call.out().view, call.lse().view, call.options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
