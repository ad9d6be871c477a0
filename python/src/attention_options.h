// Options of both forms of attention from plain values, for the C entries and the operators'
// kernels. Throws TypeError and ValueError naming the argument.
#pragma once

#include <string>
#include <string_view>

#include "kiln/kiln.h"

namespace kiln::python {

// `given` is the caller's value as messages show it.
[[noreturn]] void refuse_window(const std::string& given);
AttentionLayout attention_layout(std::string_view name);
// The log-sum-exp of q, contiguous, data null.
TensorView lse_of(const TensorView& q, AttentionLayout layout);

[[noreturn]] void refuse_dropout(const std::string& given);

}  // namespace kiln::python
