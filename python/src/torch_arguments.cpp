// Values of arguments of the operators torch.ops.kiln.*.
#include "torch_arguments.h"

#include <array>
#include <charconv>

#include "dtypes.h"
#include "options.h"

namespace kiln::python {

std::string repr_of(const TorchList& list) {
  std::string text;
  for (std::size_t i = 0; i < size_of(list); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(item_of(list, i));
  }
  return "[" + text + "]";
}

std::string repr_of(double value) {
  std::array<char, 32> text{};
  char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string digits(text.data(), static_cast<std::size_t>(end - text.data()));
  return digits.find_first_not_of("-0123456789") == std::string::npos ? digits + ".0" : digits;
}

float float_number(double value, Subject subject) {
  if (overflows_float(value)) refuse_large_number(subject, repr_of(value));
  return static_cast<float>(value);
}

std::optional<float> float_number(std::optional<double> value, Subject subject) {
  if (!value) return std::nullopt;
  return float_number(*value, subject);
}

DType asked_dtype(std::optional<std::int32_t> code, Subject subject) {
  if (!code) return DType::none;
  const DlDataType type = torch_abi().dlpack_type_of(*code);
  const DType dtype = dtype_of(type);
  // Nothing is computed in uint64, which has no name among the dtypes of results.
  if (dtype == DType::other || dtype == DType::u64)
    refuse_dtype(subject, "torch." + dlpack_type_text(type));
  return dtype;
}

}  // namespace kiln::python
