// Options that several operations have.
#include "options.h"

#include <cmath>
#include <limits>

#include "dtypes.h"

namespace kiln::python {
namespace {

bool is_input_alone(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }

}  // namespace

DType output_dtype(DType input, DType asked) {
  if (asked != DType::none) return asked;
  return is_input_alone(input) ? DType::bf16 : input;
}

void check_out_dtype(const char* op, DType asked, const TensorView& out, bool may_quantize) {
  const Subject subject{op, "out_dtype"};
  if ((is_input_alone(asked) || asked == DType::i8) && !may_quantize) {
    throw_type(subject, std::string("must be float16, bfloat16 or float32, got ") + name(asked));
  }
  check_same_dtype(subject, asked, out);
}

void check_same_dtype(Subject subject, DType asked, const TensorView& out) {
  if (!out.given() || asked == DType::none || asked == out.dtype) return;
  throw_type(subject, std::string("is ") + name(asked) + " but out is " + name(out.dtype) +
                          "; give one of the two");
}

DType named_dtype(std::string_view name, Subject subject) {
  const std::optional<DType> dtype = dtype_by_name(name);
  if (!dtype) refuse_dtype(subject, "'" + std::string(name) + "'");
  return *dtype;
}

void refuse_dtype(Subject subject, const std::string& given) {
  throw_type(subject,
             "must be a dtype that Kiln computes with, or its name, such as \"float16\", "
             "\"bfloat16\" or \"float32\", got " +
                 given);
}

int as_int(std::int64_t value, Subject subject) {
  if (value == static_cast<int>(value)) return static_cast<int>(value);
  throw_value(subject, "must fit an integer of 32 bits, got " + std::to_string(value));
}

bool overflows_float(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::isfinite(value) && std::abs(value) > kLargest;
}

void refuse_large_number(Subject subject, const std::string& given) {
  throw_value(subject, "must fit a float32, up to 3.4e38, got " + given);
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

}  // namespace kiln::python
