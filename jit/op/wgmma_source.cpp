#include "jit/op/wgmma_source.h"

#include "jit/op/source_text.h"

namespace kiln {
namespace {

// How far step `step` of an operand lies from the first, in the descriptor's units of 16 bytes: 32
// bytes a step along the row and then in the next slab, or 16 rows of 128 bytes down.
int descriptor_offset(Major major, int step, int slab_bytes) {
  if (major == Major::mn) return step * 16 * 128 / 16;
  return step % 4 * 32 / 16 + step / 4 * slab_bytes / 16;
}

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

// A constraint and an array's elements, as operands of inline assembly.
std::string operands(const char* constraint, const char* array, int count) {
  SourceText text;
  for (int i = 0; i < count; ++i) {
    text << (i == 0       ? ""
             : i % 8 == 0 ? ",\n        "
                          : ", ")
         << "\"" << constraint << "\"(" << array << "[" << i << "])";
  }
  return text.str();
}

// The high word of a descriptor, see operand_descriptor() in templates/sm90/wgmma.cuh: how far the
// next eight rows are on, and whether chunks are swizzled over 128 bytes.
const char* high_word(RowsInMemory rows) {
  switch (rows) {
    case RowsInMemory::slabs:
      return "0x40000040";  // 1024 bytes, swizzled
    case RowsInMemory::short_rows:
      return "0x00000008";  // 128 bytes
    default:
      return "0x00000000";  // at the same place
  }
}

// The instructions of all steps. Operands of the assembly: d, then a (a descriptor or registers),
// then b and `accumulate`.
std::string steps_source(const WgmmaShape& shape, int registers, int a_operands) {
  // 32 bytes of K. Only 16-bit elements may be transposed.
  const int elements = 32 / size_of(shape.a);
  const int first_a = registers, b = registers + a_operands;
  SourceText text;
  const auto advance = [&](const char* name, int operand, int offset, RowsInMemory rows) {
    if (shape.low_words) {
      text << "      \"add.u32 low, %" << operand << ", " << offset << ";\\n\"\n"
           << "      \"mov.b64 " << name << ", {low, " << high_word(rows) << "};\\n\"\n";
    } else {
      text << "      \"add.u64 " << name << ", %" << operand << ", " << offset << ";\\n\"\n";
    }
  };
  for (int step = 0; step < shape.k_steps; ++step) {
    std::string operand_a = "a", operand_b = "b";
    if (step == 0 && !shape.low_words) {
      operand_a = "%" + std::to_string(first_a), operand_b = "%" + std::to_string(b);
    } else {
      if (!shape.a_in_registers) {
        advance("a", first_a, descriptor_offset(shape.major_rows, step, shape.slab_a),
                shape.rows_a);
      }
      advance("b", b, descriptor_offset(shape.major_columns, step, shape.slab_b), shape.rows_b);
    }
    if (shape.a_in_registers) {
      operand_a = "{";
      for (int i = 0; i < 4; ++i) {
        operand_a += (i == 0 ? "%" : ", %") + std::to_string(first_a + 4 * step + i);
      }
      operand_a += "}";
    }
    text << "      \"wgmma.mma_async.sync.aligned.m64n" << shape.n << "k" << elements << ".f32."
         << element(shape.a) << "." << element(shape.b) << " \"\n      " << register_list(registers)
         << "\n      \", " << operand_a << ", " << operand_b << ", "
         << (step == 0 ? "more" : "always") << ", 1, 1";
    if (elements == 16) {
      if (!shape.a_in_registers) text << ", " << (shape.major_rows == Major::mn ? 1 : 0);
      text << ", " << (shape.major_columns == Major::mn ? 1 : 0);
    }
    text << ";\\n\"\n";
  }
  return text.str();
}

}  // namespace

std::string render_wgmma(const WgmmaShape& shape) {
  const int registers = shape.n / 2;
  const int a_operands = shape.a_in_registers ? 4 * shape.k_steps : 1;
  const int accumulate = registers + a_operands + 1;
  const std::string bytes = std::to_string(32 * shape.k_steps);
  SourceText text;
  text << "struct " << shape.name << " {\n"
       << "  static constexpr int kRegisters = " << registers << ";\n\n";
  const char* const constraint = shape.low_words ? "r" : "l";
  const char* const descriptor = shape.low_words ? "kiln::u32" : "kiln::u64";
  const char* const given = shape.low_words ? "low words of descriptors" : "descriptors";
  text << "  // d = a b + (accumulate ? d : 0) over " << bytes << " bytes of K; ";
  if (shape.a_in_registers) {
    text << "a is packed in d's order of rows and columns.\n";
  } else {
    text << "a and b are " << given << ".\n";
  }
  text << "  __device__ __forceinline__ static void multiply(float (&d)[kRegisters], ";
  if (shape.a_in_registers) {
    text << "const kiln::u32 (&a)[" << a_operands << "],\n";
  } else {
    text << descriptor << " a,\n";
  }
  text << "                                                  " << descriptor
       << " b, int accumulate) {\n";
  text << "    asm volatile(\n"
       << "      \"{\\n.reg .pred more, always;\\n.reg .b64 a, b;\\n"
       << (shape.low_words ? ".reg .b32 low;\\n" : "") << "\"\n"
       << "      \"setp.ne.b32 more, %" << accumulate << ", 0;\\n\"\n"
       << "      \"setp.eq.b32 always, %" << accumulate << ", %" << accumulate << ";\\n\"\n"
       << steps_source(shape, registers, a_operands) << "      \"}\"\n"
       << "      : " << operands("+f", "d", registers) << "\n"
       << "      : "
       << (shape.a_in_registers ? operands("r", "a", a_operands)
                                : std::string("\"") + constraint + "\"(a)")
       << ", \"" << constraint << "\"(b), \"r\"(accumulate));\n"
       << "  }\n\n"
       << "  // Until at most kPending committed groups are under way; d may be read where it is "
          "in\n"
       << "  // none of these.\n"
       << "  template <int kPending = 0>\n"
       << "  __device__ __forceinline__ static void finish(float (&d)[kRegisters]) {\n"
       << "    asm volatile(\"wgmma.wait_group.sync.aligned %" << registers << ";\"\n"
       << "      : " << operands("+f", "d", registers) << "\n"
       << "      : \"n\"(kPending) : \"memory\");\n"
       << "  }\n};\n\n";
  return text.str();
}

}  // namespace kiln
