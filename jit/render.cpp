#include "jit/render.h"

#include "jit/render_parts.h"

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
    case DType::i32:
      return "int";
    case DType::u8:
      return "kiln::u8";
    case DType::boolean:
      return "bool";
    default:
      return "float";
  }
}

std::string render(const Specialization& spec, const UserTexts& texts) {
  const std::size_t row = static_cast<std::size_t>(spec.row());
  return spec.family() == Family::attention
             ? render_attention(spec.attention(), attention_configs()[row], texts)
             : render_gemm(spec.gemm(), gemm_configs()[row], texts);
}

std::string describe(const Specialization& spec, const UserTexts& texts) {
  const std::size_t row = static_cast<std::size_t>(spec.row());
  return spec.family() == Family::attention
             ? describe_attention(spec.attention(), attention_configs()[row], texts)
             : describe_gemm(spec.gemm(), gemm_configs()[row], texts);
}

}  // namespace kiln
