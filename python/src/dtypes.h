// Element types: DLPack's codes, array-interface strings and Python's dtype objects.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <string_view>

#include "dlpack.h"
#include "kiln/tensor.h"

namespace kiln::python {

namespace py = pybind11;

DType dtype_of(DlDataType type);
DlDataType dlpack_type_of(DType dtype);
std::string dlpack_type_text(DlDataType type);  // "int8", "float8 (code 10)"

// "float16" and the like, also "torch.float16" and the short names "f16", "bf16", "f32", …
std::optional<DType> dtype_by_name(std::string_view name);

// The name of a dtype given as a string, torch.dtype, numpy or cupy dtype or scalar type.
std::string dtype_name_of(PyObject* object);

}  // namespace kiln::python
