// jit.flash_attention: its arguments, its outputs, its call.
#include <array>
#include <optional>
#include <string>

#include "arguments.h"
#include "attention_options.h"
#include "errors.h"
#include "generated/flash_attention.h"
#include "kiln/control.h"
#include "kiln/kiln.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"
#include "variant.h"

namespace kiln::python {
namespace {

using Signature = FlashAttentionSignature;
using enum Signature::Slot;

constexpr Subject subject(Signature::Slot slot) { return subject_of<Signature>(slot); }

using Slots = std::array<PyObject*, kSlots>;

AttentionLayout read_layout(PyObject* object) {
  if (object == nullptr) return AttentionLayout::bshd;
  if (object == Py_None) {
    throw_value(subject(kLayout),
                "must be \"bshd\" or \"bhsd\", got None; leave it out for \"bshd\"");
  }
  return attention_layout(string_argument(object, subject(kLayout)));
}

// One call, read from its Python arguments.
struct AttentionCall {
  Signature::Tensors<TensorArgument> tensors;
  AttentionOptions options;
  TensorIntake intake;
  bool returns_lse = false;
  std::shared_ptr<const BoundVariant> composed;

  AttentionCall(const Slots& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    read_numbers<Signature>(slots, options);
    read_window(slots[kWindow], subject(kWindow), options);
    options.variant = variant_argument(slots[kVariant], subject(kVariant), composed);
    options.layout = read_layout(slots[kLayout]);
    returns_lse = bool_argument(slots[kReturnLse], false, subject(kReturnLse));
    intake.read(tensors.all);
    if (intake.staged() != nullptr && options.variant && !options.variant->tensors().empty()) {
      throw_type(subject(kVariant),
                 "keeps tensors of a GPU, whose streams NumPy arrays are not ordered with; pass q, "
                 "k and v on the GPU too, for example with cupy.asarray(x)");
    }
    options.attn_mask = tensors.attn_mask().view;
    options.sinks = tensors.sinks().view;
    options.alibi_slopes = tensors.alibi_slopes().view;
    options.q_scale = tensors.q_scale().view;
    options.k_scale = tensors.k_scale().view;
    options.v_scale = tensors.v_scale().view;
  }

  TensorView out_shape() const {
    return flash_attention_output(tensors.q().view, tensors.v().view);
  }
  TensorView lse_shape() const { return lse_of(tensors.q().view, options.layout); }
};

}  // namespace

PyObject* flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                PyObject* keywords) {
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    AttentionCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, options, intake, returns_lse, composed] = call;
    // The output's shape needs q's and v's ranks, so it is asked for before lse's is formed.
    py::object out =
        given_or_new(intake, tensors.q(), tensors.out(), [&] { return call.out_shape(); });
    py::object lse;
    if (returns_lse || tensors.lse().given()) {
      lse = given_or_new(intake, tensors.q(), tensors.lse(), [&] { return call.lse_shape(); });
    }
    CallWorkspace workspace(Signature::kOp, tensors.q(), intake);
    options.workspace = workspace.callback();
    flash_attention(tensors.q().view, tensors.k().view, tensors.v().view, tensors.out().view,
                    tensors.lse().view, options, intake.stream());
    intake.finish();
    if (!returns_lse) return out.release().ptr();
    return PyTuple_Pack(2, out.ptr(), lse.ptr());
  });
}

PyObject* explain_flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                        PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    AttentionCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, options, intake, returns_lse, composed] = call;
    set_default_view(intake, tensors.out(), [&] { return call.out_shape(); });
    if (returns_lse) set_default_view(intake, tensors.lse(), [&] { return call.lse_shape(); });
    return py::str(explain_flash_attention(tensors.q().view, tensors.k().view, tensors.v().view,
                                           tensors.out().view, tensors.lse().view, options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
