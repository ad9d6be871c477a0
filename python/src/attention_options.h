// Options of all forms of attention from plain values, for the C entries and the operators'
// kernels. Throws TypeError and ValueError naming the argument.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

#include "frameworks.h"
#include "kiln/kiln.h"
#include "torch_abi.h"

namespace kiln::python {

// A pair of integers; what is not given leaves the window open.
void read_window(PyObject* window, Subject subject, AttentionOptions& options);
void read_window(const TorchList& window, Subject subject, AttentionOptions& options);
AttentionLayout attention_layout(std::string_view name);
// The log-sum-exp of q, contiguous, data null.
TensorView lse_of(const TensorView& q, AttentionLayout layout);

[[noreturn]] void refuse_dropout(const std::string& given);

// The dtype of a new out in a call over sequences: none stands for q's.
inline DType out_dtype_of(const TensorView& out_scale) {
  return out_scale.given() ? DType::f8_e4m3 : DType::none;
}

}  // namespace kiln::python
