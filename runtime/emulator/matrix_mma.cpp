// mma.sync: products of fragments in registers. PTX ISA, "Matrix multiply-accumulate operation
// using mma instruction".
#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/emulator/matrix.h"
#include "runtime/emulator/matrix_elements.h"
#include "runtime/emulator/matrix_product.h"

namespace kiln::runtime::emulator {
namespace {

// All shapes share one scheme. A register holds 32 / bits elements, neighbours in k; four lanes
// side by side cover one chunk of k, the warp's eight quads cover eight rows (of A) or columns (of
// B). A's registers go over its two halves of rows first, then over the chunks of k.
constexpr int kQuads = 8;
constexpr int kColumns = 8;
constexpr int kMostK = 64;

struct Shape {
  std::string_view name;
  std::uint8_t rows, k;
};
constexpr Shape kShapes[] = {{"m16n8k4", 16, 4},   {"m16n8k8", 16, 8},   {"m16n8k16", 16, 16},
                             {"m16n8k32", 16, 32}, {"m16n8k64", 16, 64}, {"m8n8k16", 8, 16},
                             {"m8n8k32", 8, 32}};

enum class Accumulator : std::uint8_t { f32, f16, s32, s32_saturated };

struct MmaExtra : OpExtra {
  Accumulator accumulator = Accumulator::f32;
  std::uint8_t rows = 16, k = 16;
  // Rows of registers.
  std::array<Ref, 8> a{};
  std::array<Ref, 4> b{};
  std::array<Ref, 4> c{}, d{};
};

const MmaExtra& extra_of(const Warp& warp, const Op& op);

template <Element kElement>
struct Fragments {
  using Value = ElementValue<kElement>;
  static constexpr int kBits = [] { return kElements[static_cast<std::size_t>(kElement)].bits; }();
  static constexpr int kPerRegister = 32 / kBits;
  static constexpr int kChunk = 4 * kPerRegister;

  static void load_a(const Warp& warp, const MmaExtra& mma, Value* a) {
    const int halves = mma.rows / kQuads;
    for (int chunk = 0; chunk < mma.k / kChunk; ++chunk) {
      for (int half = 0; half < halves; ++half) {
        const std::uint32_t* bits =
            warp.u32(mma.a[static_cast<std::size_t>(chunk * halves + half)]);
        for (int quad = 0; quad < kQuads; ++quad) {
          Value* out = a + (half * kQuads + quad) * mma.k + chunk * kChunk;
          for (int i = 0; i < kChunk; ++i) {
            out[i] = element_value<kElement>(bits[quad * 4 + i / kPerRegister] >>
                                             (i % kPerRegister * kBits));
          }
        }
      }
    }
  }

  static void load_b(const Warp& warp, const MmaExtra& mma, Value* b) {
    for (int chunk = 0; chunk < mma.k / kChunk; ++chunk) {
      const std::uint32_t* bits = warp.u32(mma.b[static_cast<std::size_t>(chunk)]);
      for (int i = 0; i < kChunk; ++i) {
        Value* out = b + (chunk * kChunk + i) * kColumns;
        for (int quad = 0; quad < kQuads; ++quad) {
          out[quad] = element_value<kElement>(bits[quad * 4 + i / kPerRegister] >>
                                              (i % kPerRegister * kBits));
        }
      }
    }
  }
};

// Accumulators of 32 bits: register 2 * half + e is row 8 * half + quad, column 2 * (lane % 4) + e.
template <class Value>
void load_c(const Warp& warp, const MmaExtra& mma, Value* c) {
  for (int r = 0; r < mma.rows / 4; ++r) {
    const std::uint32_t* bits = warp.u32(mma.c[static_cast<std::size_t>(r)]);
    Value* out = c + r / 2 * kQuads * kColumns + r % 2;
    for (int lane = 0; lane < kLanes; ++lane) out[2 * lane] = std::bit_cast<Value>(bits[lane]);
  }
}
template <class Value>
void store_d(Warp& warp, const MmaExtra& mma, const Value* c) {
  for (int r = 0; r < mma.rows / 4; ++r) {
    const Ref ref = mma.d[static_cast<std::size_t>(r)];
    if (ref == kNoRef) continue;
    std::uint32_t* bits = warp.u32_out(ref);
    const Value* in = c + r / 2 * kQuads * kColumns + r % 2;
    for (int lane = 0; lane < kLanes; ++lane)
      bits[lane] = std::bit_cast<std::uint32_t>(in[2 * lane]);
  }
}

// Accumulators of f16, two columns in one register.
void load_c_f16(const Warp& warp, const MmaExtra& mma, float* c) {
  for (int half = 0; half < mma.rows / kQuads; ++half) {
    const std::uint32_t* bits = warp.u32(mma.c[static_cast<std::size_t>(half)]);
    float* out = c + half * kQuads * kColumns;
    for (int lane = 0; lane < kLanes; ++lane) {
      out[2 * lane] = real_element<Element::f16>(bits[lane]);
      out[2 * lane + 1] = real_element<Element::f16>(bits[lane] >> 16);
    }
  }
}
void store_d_f16(Warp& warp, const MmaExtra& mma, const float* c) {
  for (int half = 0; half < mma.rows / kQuads; ++half) {
    const Ref ref = mma.d[static_cast<std::size_t>(half)];
    if (ref == kNoRef) continue;
    std::uint32_t* bits = warp.u32_out(ref);
    const float* in = c + half * kQuads * kColumns;
    for (int lane = 0; lane < kLanes; ++lane) {
      bits[lane] = f16_bits(in[2 * lane]) | f16_bits(in[2 * lane + 1]) << 16;
    }
  }
}

template <Element kA, Element kB>
Flow run_mma(Warp& warp, const Op& op, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  const MmaExtra& mma = extra_of(warp, op);
  using Value = ElementValue<kA>;
  // Rows that a shape of 8 rows lacks are multiplied all the same, from zeros.
  alignas(64) Value a[kMatrixRows * kMostK];
  alignas(64) Value b[kMostK * kColumns];
  alignas(64) Value c[kMatrixRows * kColumns];
  if (mma.rows < kMatrixRows) {
    std::fill(std::begin(a), std::end(a), Value{});
    std::fill(std::begin(c), std::end(c), Value{});
  }
  Fragments<kA>::load_a(warp, mma, a);
  Fragments<kB>::load_b(warp, mma, b);
  if constexpr (kA >= Element::s8) {
    load_c(warp, mma, c);
    multiply_add(a, b, c, mma.k, kColumns, mma.accumulator == Accumulator::s32_saturated);
    store_d(warp, mma, c);
  } else {
    const bool half = mma.accumulator == Accumulator::f16;
    half ? load_c_f16(warp, mma, c) : load_c(warp, mma, c);
    if constexpr (kA == Element::e4m3 || kA == Element::e5m2) {
      multiply_add_fp8(a, b, c, mma.k, kColumns);
    } else {
      multiply_add(a, b, c, mma.k, kColumns);
    }
    half ? store_d_f16(warp, mma, c) : store_d(warp, mma, c);
  }
  return Flow::next;
}

struct Kind {
  std::string_view a, b;
  Handler run;
  std::uint8_t bits;
  bool integer, half_accumulator;
  std::string_view shapes;  // those that the ISA lists, of what the scheme covers
};
constexpr std::string_view kHalfShapes = "m16n8k8 m16n8k16 ", kByteShapes = "m16n8k16 m16n8k32 ",
                           kIntegerShapes = "m8n8k16 m16n8k16 m16n8k32 ",
                           kNibbleShapes = "m8n8k32 m16n8k32 m16n8k64 ";
using enum Element;
constexpr Kind kKinds[] = {
    {"f16", "f16", run_mma<f16, f16>, 16, false, true, kHalfShapes},
    {"bf16", "bf16", run_mma<bf16, bf16>, 16, false, false, kHalfShapes},
    {"tf32", "tf32", run_mma<tf32, tf32>, 32, false, false, "m16n8k4 m16n8k8 "},
    {"e4m3", "e4m3", run_mma<e4m3, e4m3>, 8, false, true, kByteShapes},
    {"e4m3", "e5m2", run_mma<e4m3, e5m2>, 8, false, true, kByteShapes},
    {"e5m2", "e4m3", run_mma<e5m2, e4m3>, 8, false, true, kByteShapes},
    {"e5m2", "e5m2", run_mma<e5m2, e5m2>, 8, false, true, kByteShapes},
    {"s8", "s8", run_mma<s8, s8>, 8, true, false, kIntegerShapes},
    {"s8", "u8", run_mma<s8, u8>, 8, true, false, kIntegerShapes},
    {"u8", "s8", run_mma<u8, s8>, 8, true, false, kIntegerShapes},
    {"u8", "u8", run_mma<u8, u8>, 8, true, false, kIntegerShapes},
    {"s4", "s4", run_mma<s4, s4>, 4, true, false, kNibbleShapes},
    {"s4", "u4", run_mma<s4, u4>, 4, true, false, kNibbleShapes},
    {"u4", "s4", run_mma<u4, s4>, 4, true, false, kNibbleShapes},
    {"u4", "u4", run_mma<u4, u4>, 4, true, false, kNibbleShapes},
};

const MmaExtra& extra_of(const Warp& warp, const Op& op) {
  return static_cast<const MmaExtra&>(*warp.block().cluster().program().extras[op.extra]);
}

template <std::size_t kSize>
void take_refs(Decoder& decoder, std::pair<std::uint32_t, std::uint32_t> listed, int count,
               std::array<Ref, kSize>& refs, const char* what) {
  if (static_cast<int>(listed.second) != count) {
    decoder.fail(std::string("mma: ") + what + " needs " + std::to_string(count) +
                 " registers, not " + std::to_string(listed.second));
  }
  for (std::uint32_t i = 0; i < listed.second; ++i) {
    refs[i] = decoder.program().lists[listed.first + i];
  }
}

const Shape* find_shape(std::string_view name) {
  const auto* found = std::ranges::find(kShapes, name, &Shape::name);
  return found == std::end(kShapes) ? nullptr : found;
}

}  // namespace

void decode_mma(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 4, 4);
  ModifierReader modifiers(instruction);
  if (!modifiers.take("sync") || !modifiers.take("aligned")) decoder.unknown();
  const Shape* shape = find_shape(modifiers.next());
  if (shape == nullptr || !modifiers.take("row") || !modifiers.take("col")) decoder.unknown();
  const bool saturated = modifiers.take("satfinite");
  const std::string_view d = modifiers.next(), a = modifiers.next(), b = modifiers.next(),
                         c = modifiers.next();
  const auto* kind =
      std::ranges::find_if(kKinds, [&](const Kind& row) { return row.a == a && row.b == b; });
  if (kind == std::end(kKinds) || !modifiers.done() || c != d) decoder.unknown();
  if (kind->shapes.find(std::string(shape->name) + ' ') == std::string_view::npos) {
    decoder.unknown();
  }
  auto mma = std::make_unique<MmaExtra>();
  mma->rows = shape->rows;
  mma->k = shape->k;
  if (kind->integer && d == "s32") {
    mma->accumulator = saturated ? Accumulator::s32_saturated : Accumulator::s32;
  } else if (!kind->integer && !saturated && d == "f32") {
    mma->accumulator = Accumulator::f32;
  } else if (kind->half_accumulator && !saturated && d == "f16") {
    mma->accumulator = Accumulator::f16;
  } else {
    decoder.unknown();
  }
  const bool half = mma->accumulator == Accumulator::f16;
  const int chunks = shape->k * kind->bits / 128;  // of 4 lanes of 32 bits
  const Type type = half ? Type::f16x2 : kind->integer ? Type::s32 : Type::f32;
  const auto& operands = instruction.operands;
  const int accumulators = shape->rows / (half ? 8 : 4);
  take_refs(decoder, decoder.destinations(operands[0], type), accumulators, mma->d, "D");
  take_refs(decoder, decoder.sources(operands[1], Type::b32), shape->rows / 8 * chunks, mma->a,
            "A");
  take_refs(decoder, decoder.sources(operands[2], Type::b32), chunks, mma->b, "B");
  take_refs(decoder, decoder.sources(operands[3], type), accumulators, mma->c, "C");
  op.run = kind->run;
  op.extra = decoder.keep(std::move(mma));
}

}  // namespace kiln::runtime::emulator
