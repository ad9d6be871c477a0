// jit.gemm: its arguments, its output, its call.
#include <array>
#include <string>

#include "arguments.h"
#include "epilogue.h"
#include "errors.h"
#include "gemm_options.h"
#include "generated/gemm.h"
#include "kiln/control.h"
#include "kiln/kiln.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"

namespace kiln::python {
namespace {

using Signature = GemmSignature;
using enum Signature::Slot;

constexpr Subject subject(Signature::Slot slot) { return subject_of<Signature>(slot); }

using Slots = std::array<PyObject*, kSlots>;

// The last two may be missing.
constexpr std::array<const char*, kTileNumbers> kTileKeys = {"block_m", "block_n", "block_k",
                                                             "stages",  "cluster", "splits"};
constexpr Py_ssize_t kNeededTileKeys = kNeededTileNumbers;

// A tuple, or the list that operators make of it, of as many numbers as a row has.
bool is_row(PyObject* config) {
  if (!PyTuple_Check(config) && !PyList_Check(config)) return false;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(config);
  return size >= kNeededTileKeys && size <= static_cast<Py_ssize_t>(kTileKeys.size());
}

GemmTile read_tile(PyObject* config) {
  std::array<std::int64_t, kTileKeys.size()> values{};
  if (PyDict_Check(config)) {
    Py_ssize_t found = 0;
    for (std::size_t i = 0; i < kTileKeys.size(); ++i) {
      // Held, as an __index__ may take it out of the dict.
      const auto value =
          py::reinterpret_borrow<py::object>(PyDict_GetItemString(config, kTileKeys[i]));
      if (value) {
        values[i] = int64_argument(value.ptr(), subject(kConfig));
        ++found;
      } else if (static_cast<Py_ssize_t>(i) < kNeededTileKeys) {
        throw_value(subject(kConfig), std::string("lacks \"") + kTileKeys[i] +
                                          "\"; it needs block_m, block_n, block_k and stages");
      }
    }
    if (PyDict_GET_SIZE(config) != found) {
      throw_value(subject(kConfig),
                  "has unknown keys; it takes block_m, block_n, block_k, stages, cluster, splits");
    }
  } else if (is_row(config)) {
    // A list is copied, as an __index__ may change it.
    const py::object row = take(PySequence_Tuple(config));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(row.ptr()); ++i) {
      values[static_cast<std::size_t>(i)] =
          int64_argument(PyTuple_GET_ITEM(row.ptr(), i), subject(kConfig));
    }
  } else {
    refuse_tile(repr_of(config));
  }
  return tile_of(values);
}

Accumulator read_accumulator(PyObject* object) {
  if (object == nullptr) return Accumulator::f32;
  return accumulator_of(dtype_argument(object, subject(kAccumulator)));
}

Activation read_activation(PyObject* object) {
  const std::string_view text = string_argument(object, subject(kActivation));
  return text.empty() && !is_given(object) ? Activation::none : parse_activation(std::string(text));
}

Pdl read_pdl(PyObject* object) {
  if (object == nullptr || object == Py_False) return Pdl::off;
  if (object == Py_True) return Pdl::on;
  if (PyUnicode_Check(object)) return pdl_of(string_argument(object, subject(kPdl)));
  refuse_pdl(repr_of(object));
}

// One call, read from its Python arguments.
struct GemmCall {
  Signature::Tensors<TensorArgument> tensors;
  EpilogueArgument epilogue;
  GemmOptions options;
  TensorIntake intake;
  DType out_dtype = DType::none;

  GemmCall(const Slots& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)),
        epilogue(slots[kEpilogue], slots[kParams], slots[kTensors]),
        intake(Signature::kOp, host_arrays) {
    options.trans_a = bool_argument(slots[kTransA], false, subject(kTransA));
    options.trans_b = bool_argument(slots[kTransB], false, subject(kTransB));
    options.activation = read_activation(slots[kActivation]);
    if (is_given(slots[kGate])) {
      options.gate = gate_of(string_argument(slots[kGate], subject(kGate)));
    }
    options.alpha = float_argument(slots[kAlpha], 1.0f, subject(kAlpha));
    if (is_given(slots[kPrecision])) {
      set_precision(options, string_argument(slots[kPrecision], subject(kPrecision)));
    }
    options.accumulator = read_accumulator(slots[kAccumulator]);
    if (slots[kExpectedRows] != nullptr) {
      options.expected_rows = int64_argument(slots[kExpectedRows], subject(kExpectedRows));
    }
    if (is_given(slots[kConfig])) options.config = read_tile(slots[kConfig]);
    options.pdl = read_pdl(slots[kPdl]);
    out_dtype = dtype_argument(slots[kOutDtype], subject(kOutDtype));
    epilogue.read(intake, tensors.all);
    epilogue.set(options);
    options.bias = tensors.bias().view;
    options.residual = tensors.residual().view;
    options.scale_a = tensors.scale_a().view;
    options.scale_b = tensors.scale_b().view;
    options.offsets = tensors.offsets().view;
    options.counts = tensors.counts().view;
    check_out_dtype(Signature::kOp, out_dtype, tensors.out().view, /*may_quantize=*/true);
  }

  TensorView out_shape() const {
    const TensorView& a = tensors.a().view;
    return gemm_output(a, tensors.b().view, output_dtype(a.dtype, out_dtype), options);
  }
};

}  // namespace

PyObject* gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    GemmCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    auto& [tensors, epilogue, options, intake, out_dtype] = call;
    py::object out =
        given_or_new(intake, tensors.a(), tensors.out(), [&] { return call.out_shape(); });
    CallWorkspace workspace(Signature::kOp, tensors.a(), intake);
    options.workspace = workspace.callback();
    gemm(tensors.a().view, tensors.b().view, tensors.out().view, options, intake.stream());
    intake.finish();
    return out.release().ptr();
  });
}

PyObject* explain_gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                             PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    GemmCall call(slots_of<Signature>(args, count, keywords), HostArrays::shown);
    auto& tensors = call.tensors;
    set_default_view(call.intake, tensors.out(), [&] { return call.out_shape(); });
    return py::str(
               explain_gemm(tensors.a().view, tensors.b().view, tensors.out().view, call.options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
