// What the options of several operations have in common: the C entries and the operators' kernels
// read them alike. Throws TypeError and ValueError naming the argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "frameworks.h"
#include "kiln/tensor.h"

namespace kiln::python {

template <class Signature>
constexpr Subject subject_of(typename Signature::Slot slot) {
  return {Signature::kOp, Signature::kNames[slot]};
}

// The dtype of a new output; `asked` may be none.
DType output_dtype(DType input, DType asked);
// What out_dtype may be, and beside an out. `may_quantize`: the operation has outputs of 8 bits.
void check_out_dtype(const char* op, DType asked, const TensorView& out, bool may_quantize = false);

// Throws TypeError where an out of another dtype is given beside the one that `subject` asks for.
void check_same_dtype(Subject subject, DType asked, const TensorView& out);

// By one of its names.
DType named_dtype(std::string_view name, Subject subject);
[[noreturn]] void refuse_dtype(Subject subject, const std::string& given);
int as_int(std::int64_t value, Subject subject);
// Whether a number is infinite as a float32 without being infinite itself.
bool overflows_float(double value);
[[noreturn]] void refuse_large_number(Subject subject, const std::string& given);
std::string quoted(std::string_view text);

}  // namespace kiln::python
