// Options of all forms of attention.
#include "attention_options.h"

#include "arguments.h"
#include "errors.h"
#include "generated/flash_attention.h"
#include "generated/scaled_dot_product_attention.h"
#include "options.h"
#include "torch_arguments.h"

namespace kiln::python {

using Attention = FlashAttentionSignature;
using Sdpa = ScaledDotProductAttentionSignature;

namespace {

// `given` is the caller's value as messages show it.
[[noreturn]] void refuse_window(Subject subject, const std::string& given) {
  throw_type(subject, "must be a pair (left, right) of integers, -1 = open, got " + given);
}

}  // namespace

void read_window(PyObject* window, Subject subject, AttentionOptions& options) {
  if (window == nullptr) return;
  const bool is_pair =
      (PyTuple_Check(window) || PyList_Check(window)) && PySequence_Fast_GET_SIZE(window) == 2;
  if (!is_pair) refuse_window(subject, repr_of(window));
  // Held, because an __index__ may take them out of a list.
  const auto left = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(window, 0));
  const auto right = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(window, 1));
  const py::object first = whole_number(left.ptr(), subject);
  const py::object second = whole_number(right.ptr(), subject);
  if (!first || !second) refuse_window(subject, repr_of(window));
  options.window_left = int64_argument(first.ptr(), subject);
  options.window_right = int64_argument(second.ptr(), subject);
}

void read_window(const TorchList& window, Subject subject, AttentionOptions& options) {
  if (size_of(window) != 2) refuse_window(subject, repr_of(window));
  options.window_left = item_of(window, 0);
  options.window_right = item_of(window, 1);
}

AttentionLayout attention_layout(std::string_view name) {
  if (name == "bshd") return AttentionLayout::bshd;
  if (name == "bhsd") return AttentionLayout::bhsd;
  throw_value(subject_of<Attention>(Attention::kLayout),
              "must be \"bshd\" or \"bhsd\", got " + quoted(name));
}

TensorView lse_of(const TensorView& q, AttentionLayout layout) {
  const bool is_bshd = layout == AttentionLayout::bshd;
  TensorView view = contiguous_view(nullptr, DType::f32, q.device_ordinal, q.shape[0],
                                    q.shape[is_bshd ? 2 : 1], q.shape[is_bshd ? 1 : 2]);
  view.device_type = q.device_type;
  return view;
}

void refuse_dropout(const std::string& given) {
  throw_value(subject_of<Sdpa>(Sdpa::kDropoutP),
              "must be 0.0, got " + given +
                  "; Kiln has no dropout (pass dropout_p only while training, elsewhere)");
}

}  // namespace kiln::python
