// jit.moe_permute and its explanation.
#include <array>

#include "arguments.h"
#include "errors.h"
#include "generated/moe_permute.h"
#include "kiln/moe.h"
#include "moe_options.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments.
struct PermuteCall {
  using Signature = MoePermuteSignature;
  Signature::Tensors<TensorArgument> tensors;
  TensorIntake intake;
  std::int64_t num_experts = 0;

  PermuteCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    num_experts = int64_argument(slots[Signature::kNumExperts],
                                 subject_of<Signature>(Signature::kNumExperts));
    intake.read(tensors.all);
  }

  TensorView out_shape() const { return permuted_rows(tensors.x().view, tensors.experts().view); }
  TensorView offsets_shape() const { return expert_offsets(num_experts); }
  TensorView inverse_shape() const { return inverse_rows(tensors.experts().view); }
  void check_offsets() const { check_expert_offsets(tensors.offsets().view, num_experts); }
};

}  // namespace

PyObject* moe_permute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                            PyObject* keywords) {
  using Signature = MoePermuteSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    PermuteCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, intake, num_experts] = call;
    py::object out =
        given_or_new(intake, tensors.x(), tensors.out(), [&] { return call.out_shape(); });
    py::object offsets =
        given_or_new(intake, tensors.x(), tensors.offsets(), [&] { return call.offsets_shape(); });
    py::object inverse =
        given_or_new(intake, tensors.x(), tensors.inverse(), [&] { return call.inverse_shape(); });
    call.check_offsets();
    CallWorkspace workspace(Signature::kOp, tensors.x(), intake);
    moe_permute(tensors.x().view, tensors.experts().view, tensors.out().view,
                tensors.offsets().view, tensors.inverse().view, workspace.callback(),
                intake.stream());
    intake.finish();
    return PyTuple_Pack(3, out.ptr(), offsets.ptr(), inverse.ptr());
  });
}

PyObject* explain_moe_permute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                    PyObject* keywords) {
  using Signature = MoePermuteSignature;
  return guarded([&]() -> PyObject* {
    PermuteCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, intake, num_experts] = call;
    set_default_view(intake, tensors.out(), [&] { return call.out_shape(); });
    set_default_view(intake, tensors.offsets(), [&] { return call.offsets_shape(); });
    set_default_view(intake, tensors.inverse(), [&] { return call.inverse_shape(); });
    call.check_offsets();
    return py::str(explain_moe_permute(tensors.x().view, tensors.experts().view, tensors.out().view,
                                       tensors.offsets().view, tensors.inverse().view))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
