// jit.moe_route and its explanation.
#include <array>

#include "arguments.h"
#include "errors.h"
#include "generated/moe_route.h"
#include "kiln/moe.h"
#include "moe_options.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments.
struct RouteCall {
  using Signature = MoeRouteSignature;
  Signature::Tensors<TensorArgument> tensors;
  MoeRouteOptions options;
  TensorIntake intake;
  std::int64_t top_k = 0;

  RouteCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    read_numbers<Signature>(slots, options);
    const auto number = [&](Signature::Slot slot, int otherwise) {
      return slots[slot] == nullptr ? otherwise
                                    : int_argument(slots[slot], subject_of<Signature>(slot));
    };
    top_k = number(Signature::kTopK, 0);
    options.groups = number(Signature::kGroups, 1);
    options.top_groups = number(Signature::kTopGroups, 1);
    if (PyObject* const name = slots[Signature::kScoring]; name != nullptr) {
      options.scoring =
          moe_scoring(string_argument(name, subject_of<Signature>(Signature::kScoring)));
    }
    intake.read(tensors.all);
    options.bias = tensors.bias().view;
  }

  TensorView shape(DType dtype) const { return route_result(tensors.logits().view, top_k, dtype); }
  void check_top_k() const {
    check_route_results(tensors.logits().view, tensors.weights().view, tensors.experts().view,
                        top_k);
  }
};

}  // namespace

PyObject* moe_route_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  using Signature = MoeRouteSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    RouteCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, options, intake, top_k] = call;
    py::object weights = given_or_new(intake, tensors.logits(), tensors.weights(),
                                      [&] { return call.shape(DType::f32); });
    py::object experts = given_or_new(intake, tensors.logits(), tensors.experts(),
                                      [&] { return call.shape(DType::i32); });
    call.check_top_k();
    moe_route(tensors.logits().view, tensors.weights().view, tensors.experts().view, options,
              intake.stream());
    intake.finish();
    return PyTuple_Pack(2, weights.ptr(), experts.ptr());
  });
}

PyObject* explain_moe_route_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                  PyObject* keywords) {
  using Signature = MoeRouteSignature;
  return guarded([&]() -> PyObject* {
    RouteCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, options, intake, top_k] = call;
    set_default_view(intake, tensors.weights(), [&] { return call.shape(DType::f32); });
    set_default_view(intake, tensors.experts(), [&] { return call.shape(DType::i32); });
    call.check_top_k();
    return py::str(explain_moe_route(tensors.logits().view, tensors.weights().view,
                                     tensors.experts().view, options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
