// jit.quantize and its explanation.
#include <array>

#include "arguments.h"
#include "errors.h"
#include "generated/quantize.h"
#include "kiln/quantize.h"
#include "options.h"
#include "output.h"
#include "quantize_options.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

// One call, read from its Python arguments.
struct QuantizeCall {
  using Signature = QuantizeSignature;
  Signature::Tensors<TensorArgument> tensors;
  QuantizeOptions options;
  TensorIntake intake;
  ScaleLayout layout = ScaleLayout::row;
  DType out_dtype = DType::none;

  QuantizeCall(const std::array<PyObject*, Signature::kSlots>& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    read_numbers<Signature>(slots, options);
    const auto text = [&](Signature::Slot slot) {
      return string_argument(slots[slot], subject_of<Signature>(slot));
    };
    if (PyObject* const group = slots[Signature::kGroup]; group == Py_None) {
      options.group = 0;
    } else if (group != nullptr) {
      options.group = scale_group(int64_argument(group, subject_of<Signature>(Signature::kGroup)));
    }
    if (is_given(slots[Signature::kActivation]))
      options.activation = gate_activation(text(Signature::kActivation));
    if (slots[Signature::kScaleLayout] != nullptr)
      layout = scale_layout(text(Signature::kScaleLayout));
    out_dtype =
        dtype_argument(slots[Signature::kOutDtype], subject_of<Signature>(Signature::kOutDtype));
    intake.read(tensors.all);
    options.counts = tensors.counts().view;
    check_quantized_dtype(out_dtype, tensors.out().view);
  }

  TensorView out_shape() const { return quantize_output(tensors.x().view, out_dtype, options); }
  // As it lies in memory.
  TensorView stored_scale() const {
    TensorView scale = quantize_scale(tensors.x().view, options);
    if (layout == ScaleLayout::row) return scale;
    scale = swapped(scale);
    std::int64_t stride = 1;
    for (int i = scale.rank - 1; i >= 0; --i) {
      scale.strides[i] = stride;
      stride *= scale.shape[i];
    }
    return scale;
  }
  bool swaps(bool is_given) const {
    return layout == ScaleLayout::column && !is_given && tensors.x().view.rank > 1;
  }
};

}  // namespace

PyObject* quantize_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  using Signature = QuantizeSignature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    QuantizeCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, options, intake, layout, out_dtype] = call;
    const bool swaps = call.swaps(tensors.scale_out().given());
    py::object out =
        given_or_new(intake, tensors.x(), tensors.out(), [&] { return call.out_shape(); });
    py::object scale =
        given_or_new(intake, tensors.x(), tensors.scale_out(), [&] { return call.stored_scale(); });
    if (swaps) tensors.scale_out().view = swapped(tensors.scale_out().view);
    quantize(tensors.x().view, tensors.out().view, tensors.scale_out().view, options,
             intake.stream());
    intake.finish();
    if (swaps) scale = scale.attr("swapaxes")(-1, -2);
    return PyTuple_Pack(2, out.ptr(), scale.ptr());
  });
}

PyObject* explain_quantize_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                 PyObject* keywords) {
  using Signature = QuantizeSignature;
  return guarded([&]() -> PyObject* {
    QuantizeCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& [tensors, options, intake, layout, out_dtype] = call;
    const bool swaps = call.swaps(tensors.scale_out().given());
    set_default_view(intake, tensors.out(), [&] { return call.out_shape(); });
    set_default_view(intake, tensors.scale_out(), [&] { return call.stored_scale(); });
    if (swaps) tensors.scale_out().view = swapped(tensors.scale_out().view);
    return py::str(explain_quantize(tensors.x().view, tensors.out().view, tensors.scale_out().view,
                                    options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
