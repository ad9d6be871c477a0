// Element types: DLPack's codes, array-interface strings and Python's dtype objects.
#include "dtypes.h"

#include <array>
#include <utility>

#include "errors.h"

namespace kiln::python {
namespace {

constexpr std::array<std::pair<DType, DlDataType>, 13> kTypes = {{
    {DType::f16, {kDlFloat, 16, 1}},
    {DType::bf16, {kDlBfloat, 16, 1}},
    {DType::f32, {kDlFloat, 32, 1}},
    {DType::f64, {kDlFloat, 64, 1}},
    {DType::i32, {kDlInt, 32, 1}},
    {DType::i64, {kDlInt, 64, 1}},
    {DType::u8, {kDlUInt, 8, 1}},
    {DType::boolean, {kDlBool, 8, 1}},
    {DType::f8_e4m3, {kDlFloat8E4m3fn, 8, 1}},
    {DType::f8_e5m2, {kDlFloat8E5m2, 8, 1}},
    {DType::i8, {kDlInt, 8, 1}},
    {DType::u64, {kDlUInt, 64, 1}},
    {DType::f8_e8m0, {kDlFloat8E8m0fnu, 8, 1}},
}};

constexpr std::array<std::pair<std::string_view, DType>, 23> kNames = {{
    {"float16", DType::f16},
    {"f16", DType::f16},
    {"half", DType::f16},
    {"bfloat16", DType::bf16},
    {"bf16", DType::bf16},
    {"float32", DType::f32},
    {"f32", DType::f32},
    {"float", DType::f32},
    {"float64", DType::f64},
    {"f64", DType::f64},
    {"int32", DType::i32},
    {"i32", DType::i32},
    {"int64", DType::i64},
    {"i64", DType::i64},
    {"uint8", DType::u8},
    {"u8", DType::u8},
    {"bool", DType::boolean},
    {"boolean", DType::boolean},
    {"float8_e4m3fn", DType::f8_e4m3},
    {"float8_e5m2", DType::f8_e5m2},
    {"float8_e8m0fnu", DType::f8_e8m0},
    {"int8", DType::i8},
    {"i8", DType::i8},
}};

}  // namespace

DType dtype_of(DlDataType type) {
  for (const auto& [dtype, dlpack] : kTypes) {
    if (dlpack.code == type.code && dlpack.bits == type.bits && type.lanes == 1) return dtype;
  }
  return DType::other;
}

DlDataType dlpack_type_of(DType dtype) {
  for (const auto& [ours, dlpack] : kTypes) {
    if (ours == dtype) return dlpack;
  }
  return {};
}

std::string dlpack_type_text(DlDataType type) {
  constexpr std::array<const char*, 7> kinds = {"int",    "uint",    "float", "opaque",
                                                "bfloat", "complex", "bool"};
  const std::string bits = std::to_string(type.bits);
  std::string text = type.code < kinds.size()
                         ? kinds[type.code] + bits
                         : "float" + bits + " (DLPack code " + std::to_string(type.code) + ")";
  if (type.lanes != 1) text += " x " + std::to_string(type.lanes);
  return text;
}

std::optional<DType> dtype_by_name(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

std::string dtype_name_of(PyObject* object) {
  if (PyUnicode_Check(object)) return py::cast<std::string>(py::handle(object));
  const py::handle handle(object);
  // numpy.float16 and ml_dtypes.bfloat16 are types; dtype objects have a name; torch's print it.
  const char* attribute = PyType_Check(object) ? "__name__" : "name";
  if (py::hasattr(handle, attribute)) return py::str(handle.attr(attribute));
  return py::str(handle);
}

}  // namespace kiln::python
