#include "jit/op/source_text.h"

#include "jit/op/user_text.h"

namespace kiln {

std::string device_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "kiln::f16";
    case DType::bf16:
      return "kiln::bf16";
    case DType::f8_e4m3:
      return "kiln::f8_e4m3";
    case DType::f8_e5m2:
      return "kiln::f8_e5m2";
    case DType::i8:
      return "kiln::i8";
    case DType::i32:
      return "int";
    case DType::i64:
      return "kiln::i64";
    case DType::u8:
      return "kiln::u8";
    case DType::boolean:
      return "bool";
    default:
      return "float";
  }
}

std::string user_return(std::string_view label, std::string_view expression) {
  const std::string user_line = "\n#line 1 \"" + std::string(label) + "\"\n";
  return "    return" + user_line + "(" + user_line + with_float_literals(expression) +
         "\n);\n#line 1 \"kernel.cu\"\n";
}

std::string numbered_label(std::size_t number, const char* text) {
  return "variant " + std::to_string(number) + " " + text;
}

std::string with_numbered_labels(std::string source, std::size_t number) {
  for (const char* text : kVariantTexts) {
    const std::string label = std::string("\"variant ") + text + "\"\n";
    const std::string numbered = "\"" + numbered_label(number, text) + "\"\n";
    for (std::size_t at = source.find(label); at != std::string::npos;
         at = source.find(label, at + numbered.size())) {
      source.replace(at, label.size(), numbered);
    }
  }
  return source;
}

std::string type_or(DType dtype, DType otherwise) {
  return device_type(dtype == DType::none ? otherwise : dtype);
}

}  // namespace kiln
