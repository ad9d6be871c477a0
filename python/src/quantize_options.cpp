#include "quantize_options.h"

#include <string>
#include <utility>

#include "generated/quantize.h"
#include "options.h"

namespace kiln::python {

ScaleLayout scale_layout(std::string_view name) {
  if (name == "row") return ScaleLayout::row;
  if (name == "column") return ScaleLayout::column;
  throw_value({"quantize", "scale_layout"}, "must be \"row\" or \"column\", got " + quoted(name));
}

Activation gate_activation(std::string_view name) {
  if (name == "swiglu") return Activation::swiglu;
  if (name == "geglu") return Activation::geglu;
  if (name == "geglu_tanh") return Activation::geglu_tanh;
  throw_value({"quantize", "activation"},
              "must be \"swiglu\", \"geglu\" or \"geglu_tanh\", got " + quoted(name));
}

int scale_group(std::int64_t group) {
  const Subject subject{"quantize", "group"};
  // The 0 of C++ is None here.
  if (group == 0) throw_value(subject, "must be at least 1, or None for all of a row, got 0");
  return as_int(group, subject);
}

void check_quantized_dtype(DType asked, const TensorView& out) {
  const Subject subject{"quantize", "out_dtype"};
  const bool known = asked == DType::f8_e4m3 || asked == DType::f8_e5m2 || asked == DType::none;
  if (!known) {
    throw_type(subject, std::string("must be float8_e4m3fn or float8_e5m2, got ") + name(asked) +
                            "; for int8 give an out of that dtype");
  }
  check_same_dtype(subject, asked, out);
}

TensorView swapped(const TensorView& view) {
  TensorView other = view;
  if (view.rank < 2) return other;
  std::swap(other.shape[view.rank - 1], other.shape[view.rank - 2]);
  std::swap(other.strides[view.rank - 1], other.strides[view.rank - 2]);
  return other;
}

}  // namespace kiln::python
