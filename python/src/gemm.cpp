// jit.gemm: its arguments, its output, its call.
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

namespace kiln::python {
namespace {

constexpr const char* kOp = kGemmOp;

// Slots of the call, in the order of kNames.
enum Slot {
  kA,
  kB,
  kTransA,
  kTransB,
  kBias,
  kActivation,
  kGate,
  kResidual,
  kScaleA,
  kScaleB,
  kAlpha,
  kOut,
  kOutDtype,
  kPrecision,
  kAccumulator,
  kEpilogue,
  kConfig,
  kSlots
};
constexpr std::array<const char*, kSlots> kNames = {
    "a",         "b",         "trans_a",     "trans_b",  "bias",  "activation",
    "gate",      "residual",  "scale_a",     "scale_b",  "alpha", "out",
    "out_dtype", "precision", "accumulator", "epilogue", "config"};

constexpr Subject subject(Slot slot) { return {kOp, kNames[slot]}; }

using Slots = std::array<PyObject*, kSlots>;

// The last two may be missing.
constexpr std::array<const char*, kTileNumbers> kTileKeys = {"block_m", "block_n", "block_k",
                                                             "stages",  "cluster", "splits"};
constexpr Py_ssize_t kNeededTileKeys = kNeededTileNumbers;

GemmTile read_tile(PyObject* config) {
  std::array<std::int64_t, kTileKeys.size()> values{};
  if (PyDict_Check(config)) {
    Py_ssize_t found = 0;
    for (std::size_t i = 0; i < kTileKeys.size(); ++i) {
      PyObject* value = PyDict_GetItemString(config, kTileKeys[i]);
      if (value != nullptr) {
        values[i] = int64_argument(value, subject(kConfig));
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
  } else if (PyTuple_Check(config) && PyTuple_GET_SIZE(config) >= kNeededTileKeys &&
             PyTuple_GET_SIZE(config) <= static_cast<Py_ssize_t>(kTileKeys.size())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(config); ++i) {
      values[static_cast<std::size_t>(i)] =
          int64_argument(PyTuple_GET_ITEM(config, i), subject(kConfig));
    }
  } else {
    refuse_tile(py::cast<std::string>(py::repr(config)));
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

// One call, read from its Python arguments.
struct GemmCall {
  std::array<TensorArgument, 7> tensors;
  GemmOptions options;
  TensorIntake intake;
  DType out_dtype = DType::none;

  TensorArgument& a() { return tensors[0]; }
  TensorArgument& b() { return tensors[1]; }
  TensorArgument& out() { return tensors[2]; }

  GemmCall(const Slots& slots, HostArrays host_arrays)
      : tensors{{{kNames[kA], slots[kA]},
                 {kNames[kB], slots[kB]},
                 {kNames[kOut], slots[kOut], true},
                 {kNames[kBias], slots[kBias]},
                 {kNames[kResidual], slots[kResidual]},
                 {kNames[kScaleA], slots[kScaleA]},
                 {kNames[kScaleB], slots[kScaleB]}}},
        intake(kOp, host_arrays) {
    for (int i = 0; i < 2; ++i) {
      if (tensors[i].object == Py_None)
        throw_type({kOp, tensors[i].name}, "must be a tensor, got None");
    }
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
    options.epilogue = string_argument(slots[kEpilogue], subject(kEpilogue));
    if (is_given(slots[kConfig])) options.config = read_tile(slots[kConfig]);
    out_dtype = dtype_argument(slots[kOutDtype], subject(kOutDtype));
    intake.read(tensors);
    options.bias = tensors[3].view;
    options.residual = tensors[4].view;
    options.scale_a = tensors[5].view;
    options.scale_b = tensors[6].view;
    check_out_dtype(out_dtype, out().view);
  }

  TensorView output_view() {
    const DType dtype = gemm_output_dtype(a().view.dtype, out_dtype);
    TensorView view = gemm_output(a().view, b().view, dtype, options);
    view.device_ordinal = intake.device_ordinal();
    return view;
  }
};

Slots parse(PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  static const Parameters parameters(kOp, 2, 2, kNames);
  Slots slots{};
  parameters.parse(args, count, keywords, slots.data());
  return slots;
}

}  // namespace

PyObject* gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded_or_traced(kOp, args, count, keywords, [&]() -> PyObject* {
    GemmCall call(parse(args, count, keywords), HostArrays::copied);
    py::object out;
    if (call.out().given()) {
      out = py::reinterpret_borrow<py::object>(call.out().object);
    } else {
      call.out().view = call.output_view();
      out = call.intake.allocate(call.a(), call.out().view, kNames[kOut]);
    }
    CallWorkspace workspace(kOp, call.a(), call.intake);
    call.options.workspace = workspace.callback();
    gemm(call.a().view, call.b().view, call.out().view, call.options, call.intake.stream());
    call.intake.finish();
    return out.release().ptr();
  });
}

PyObject* explain_gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                             PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    GemmCall call(parse(args, count, keywords), HostArrays::shown);
    if (!call.out().given()) call.out().view = call.output_view();
    return py::str(explain_gemm(call.a().view, call.b().view, call.out().view, call.options))
        .release()
        .ptr();
  });
}

}  // namespace kiln::python
