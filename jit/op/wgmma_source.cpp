#include "jit/op/wgmma_source.h"

#include "jit/op/source_text.h"

namespace kiln {
namespace {

// How far the next 32 bytes of K of an operand lie, in the descriptor's units of 16 bytes: further
// along the row, or 16 rows of 128 bytes down.
int descriptor_step(Major major) { return major == Major::k ? 32 / 16 : 16 * 128 / 16; }

const char* element(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return "e4m3";
    case DType::f8_e5m2:
      return "e5m2";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    default:
      return "tf32";
  }
}

// "{%0, %1, ..}", broken into string literals of a line each.
std::string register_list(int count) {
  SourceText text;
  text << "\"{";
  for (int i = 0; i < count; ++i) {
    text << "%" << i << (i + 1 == count ? "}" : i % 16 == 15 ? ", \"\n      \"" : ", ");
  }
  return text.str() + "\"";
}

std::string accumulators(int count) {
  SourceText text;
  for (int i = 0; i < count; ++i) {
    text << (i == 0 ? "" : i % 8 == 0 ? ",\n        " : ", ") << "\"+f\"(d[" << i << "])";
  }
  return text.str();
}

}  // namespace

std::string render_wgmma(const WgmmaShape& shape) {
  constexpr int kSteps = 4;
  const int registers = shape.n / 2;
  // 32 bytes of K. Only 16-bit elements may be transposed.
  const int elements = 32 / size_of(shape.a);
  const bool is_16_bit = elements == 16;
  SourceText text;
  text << "struct Products {\n"
       << "  static constexpr int kRegisters = " << registers << ";\n\n"
       << "  // d = a b + (accumulate ? d : 0) over 128 bytes of K; a and b are descriptors.\n"
       << "  __device__ __forceinline__ static void multiply(float (&d)[kRegisters], kiln::u64 a,\n"
       << "                                                  kiln::u64 b, int accumulate) {\n"
       << "    asm volatile(\n"
       << "      \"{\\n.reg .pred more, always;\\n.reg .b64 a, b;\\n\"\n"
       << "      \"setp.ne.b32 more, %" << registers + 2 << ", 0;\\n\"\n"
       << "      \"setp.eq.b32 always, %" << registers + 2 << ", %" << registers + 2 << ";\\n\"\n";
  for (int step = 0; step < kSteps; ++step) {
    std::string a = "a", b = "b";
    if (step == 0) {
      a = "%" + std::to_string(registers), b = "%" + std::to_string(registers + 1);
    } else {
      text << "      \"add.u64 a, %" << registers << ", "
           << step * descriptor_step(shape.major_rows) << ";\\n\"\n"
           << "      \"add.u64 b, %" << registers + 1 << ", "
           << step * descriptor_step(shape.major_columns) << ";\\n\"\n";
    }
    text << "      \"wgmma.mma_async.sync.aligned.m64n" << shape.n << "k" << elements << ".f32."
         << element(shape.a) << "." << element(shape.b) << " \"\n      " << register_list(registers)
         << "\n      \", " << a << ", " << b << ", " << (step == 0 ? "more" : "always") << ", 1, 1";
    if (is_16_bit) {
      text << ", " << (shape.major_rows == Major::mn ? 1 : 0) << ", "
           << (shape.major_columns == Major::mn ? 1 : 0);
    }
    text << ";\\n\"\n";
  }
  text << "      \"}\"\n"
       << "      : " << accumulators(registers) << "\n"
       << "      : \"l\"(a), \"l\"(b), \"r\"(accumulate));\n"
       << "  }\n\n"
       << "  // Until at most kPending committed groups are under way; d may be read where it is "
          "in\n"
       << "  // none of these.\n"
       << "  template <int kPending = 0>\n"
       << "  __device__ __forceinline__ static void finish(float (&d)[kRegisters]) {\n"
       << "    asm volatile(\"wgmma.wait_group.sync.aligned %" << registers << ";\"\n"
       << "      : " << accumulators(registers) << "\n"
       << "      : \"n\"(kPending) : \"memory\");\n"
       << "  }\n};\n\n";
  return text.str();
}

}  // namespace kiln
