// mma.sync: products of fragments in registers. PTX ISA, "Matrix multiply-accumulate operation
// using mma instruction".
#include <algorithm>
#include <memory>

#include "runtime/emulator/matrix/fragments.h"
#include "runtime/emulator/matrix/matrix.h"
#include "runtime/emulator/matrix/product.h"

namespace kiln::runtime::emulator {
namespace {

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
  std::uint8_t rows = 16, k = 16, accumulators = 4;
  // Rows of registers.
  std::array<Ref, 8> a{};
  std::array<Ref, 4> b{};
  std::array<Ref, 4> c{}, d{};
};

const MmaExtra& extra_of(const Warp& warp, const Op& op);

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
  const int halves = mma.rows / kQuads;
  const AccumulatorShape shape{halves, kColumns};
  const auto in = std::span(mma.c).first(mma.accumulators);
  const auto out = std::span(mma.d).first(mma.accumulators);
  Fragments<kA>::load_a(warp, mma.a, halves, mma.k, a);
  Fragments<kB>::load_b(warp, mma.b, mma.k, b);
  if constexpr (kA >= Element::s8) {
    load_accumulators(warp, in, shape, c);
    multiply_add(a, b, c, mma.k, kColumns, mma.accumulator == Accumulator::s32_saturated);
    store_accumulators(warp, out, shape, c);
  } else {
    const bool half = mma.accumulator == Accumulator::f16;
    half ? load_accumulators_f16(warp, in, shape, c) : load_accumulators(warp, in, shape, c);
    if constexpr (kA == Element::e4m3 || kA == Element::e5m2) {
      multiply_add_fp8_as_f16(a, b, c, mma.k, half);
    } else {
      multiply_add({kLeastNormal<kA>, kLeastNormal<kB>, half}, a, b, c, mma.k, kColumns);
    }
    half ? store_accumulators_f16(warp, out, shape, c) : store_accumulators(warp, out, shape, c);
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
  if (kind->bits == 8 && !kind->integer) need_target(decoder, 89);
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
  mma->accumulators = static_cast<std::uint8_t>(accumulators);
  take_refs(decoder, decoder.destinations(operands[0], type), accumulators, mma->d, "D");
  take_refs(decoder, decoder.sources(operands[1], Type::b32), shape->rows / 8 * chunks, mma->a,
            "A");
  take_refs(decoder, decoder.sources(operands[2], Type::b32), chunks, mma->b, "B");
  take_refs(decoder, decoder.sources(operands[3], type), accumulators, mma->c, "C");
  op.run = kind->run;
  op.extra = decoder.keep(std::move(mma));
}

}  // namespace kiln::runtime::emulator
