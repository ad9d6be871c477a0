// Names and sizes of dtypes, as kiln/tensor.h declares them.
#include "kiln/tensor.h"

namespace kiln {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::none:
      return "none";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::u8:
      return "uint8";
    case DType::boolean:
      return "bool";
    case DType::f8_e4m3:
      return "float8_e4m3fn";
    case DType::f8_e5m2:
      return "float8_e5m2";
    case DType::i8:
      return "int8";
    case DType::u64:
      return "uint64";
    case DType::f8_e8m0:
      return "float8_e8m0fnu";
    case DType::other:
      return "an unsupported dtype";
  }
  return "none";
}

}  // namespace kiln
