// jit.plan_attention and its explanation.
#include <array>

#include "generated/plan_attention.h"
#include "kiln/varlen.h"
#include "plan_options.h"
#include "varlen_call.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments.
struct PlanCall {
  using Signature = PlanAttentionSignature;
  using Slots = std::array<PyObject*, Signature::kSlots>;

  Signature::Tensors<TensorArgument> tensors;
  PlanNumbers numbers;
  TensorIntake intake;
  std::shared_ptr<const BoundVariant> composed;

  PlanCall(const Slots& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    read_sequence_numbers<Signature>(slots, tensors, numbers, composed);
    numbers.max_seqlen_q = count_argument<Signature>(slots, Signature::kMaxSeqlenQ);
    numbers.max_seqlen_k = count_argument<Signature>(slots, Signature::kMaxSeqlenK);
    intake.read(tensors.all);
  }

  TensorView shape() const {
    return with_plan_options(tensors, numbers, [&](const auto& options) {
      return plan_attention_output(tensors.q().view, tensors.k().view, tensors.v().view, options);
    });
  }
};

}  // namespace

PyObject* plan_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                               PyObject* keywords) {
  using Signature = PlanAttentionSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    PlanCall call(slots_of<Signature>(args, count, keywords), HostArrays::refused);
    auto& [tensors, numbers, intake, composed] = call;
    py::object plan =
        given_or_new(intake, tensors.q(), tensors.plan(), [&] { return call.shape(); });
    CallWorkspace workspace(Signature::kOp, tensors.q(), intake);
    numbers.attention.workspace = workspace.callback();
    with_plan_options(tensors, numbers, [&](const auto& options) {
      plan_attention(tensors.q().view, tensors.k().view, tensors.v().view, tensors.plan().view,
                     options, intake.stream());
    });
    intake.finish();
    return plan.release().ptr();
  });
}

PyObject* explain_plan_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                       PyObject* keywords) {
  using Signature = PlanAttentionSignature;
  return guarded([&]() -> PyObject* {
    PlanCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, numbers, intake, composed] = call;
    set_default_view(intake, tensors.plan(), [&] { return call.shape(); });
    return py::str(with_plan_options(tensors, numbers,
                                     [&](const auto& options) {
                                       return explain_plan_attention(
                                           tensors.q().view, tensors.k().view, tensors.v().view,
                                           tensors.plan().view, options);
                                     }))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
