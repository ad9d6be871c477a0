// wgmma: products of a warpgroup. Each of its four warps computes its own 16 rows, from its own
// quarter of A and all of B. PTX ISA, "Asynchronous warpgroup level matrix instructions".
#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/emulator/matrix/descriptor.h"
#include "runtime/emulator/matrix/fragments.h"
#include "runtime/emulator/matrix/groups.h"
#include "runtime/emulator/matrix/matrix.h"
#include "runtime/emulator/matrix/product.h"

namespace kiln::runtime::emulator {
namespace {

constexpr int kBytesOfK = 32;  // of every wgmma
constexpr int kMostColumns = 256;
constexpr int kWarps = 4;

struct WgmmaExtra;
using Compute = void (*)(Warp&, const WgmmaExtra&, const MatrixWork&);

enum class Accumulator : std::uint8_t { f32, f16, s32, s32_saturated };

struct WgmmaExtra : OpExtra {
  Compute compute = nullptr;
  Accumulator accumulator = Accumulator::f32;
  int columns = 8;
  bool a_in_registers = false;
  bool transpose_a = false, transpose_b = false;  // MN-major
  bool negate = false;                            // one of imm-scale-a and imm-scale-b, not both
  Ref a_descriptor = kNoRef, b_descriptor = kNoRef;
  Ref scale_d = kNoRef;    // a predicate; kNoRef where scale-d is a literal
  Mask scale_d_flips = 0;  // XORed with the predicate: of a negated one, or the literal itself
  std::vector<Ref> a, d;
  std::vector<std::uint32_t> a_registers, d_registers;  // indices in Function::registers
};

const WgmmaExtra& extra_of(const Warp& warp, const Op& op) {
  return static_cast<const WgmmaExtra&>(*warp.block().cluster().program().extras[op.extra]);
}

template <Element kElement>
ElementValue<kElement> element_at(const std::byte* bytes, int i) {
  constexpr int size = kElements[static_cast<std::size_t>(kElement)].bits / 8;
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes + i * size, size);  // little-endian, as the device is
  return element_value<kElement>(bits);
}

template <Element kElement>
struct SharedOperand {
  using Value = ElementValue<kElement>;
  static constexpr int kBits = kElements[static_cast<std::size_t>(kElement)].bits;
  static constexpr int kK = kBytesOfK * 8 / kBits;

  // Element (row, k) goes to out[row * row_step + k * k_step], for `count` rows from `first` on.
  static void load(MatrixReader& reader, const MatrixDescriptor& from, bool transposed, int first,
                   int count, Value* out, int row_step, int k_step) {
    if (transposed) return load_transposed(reader, from, first, count, out, row_step, k_step);
    for (int row = 0; row < count; row += 8) {
      MatrixReader::Rows rows;
      reader.k_major(from, static_cast<std::uint32_t>(first + row), rows);
      Value values[8][kK];
      for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < kK; ++k) values[i][k] = element_at<kElement>(rows[i], k);
      }
      for (int k = 0; k < kK; ++k) {
        for (int i = 0; i < 8; ++i) out[(row + i) * row_step + k * k_step] = values[i][k];
      }
    }
  }

 private:
  static void load_transposed([[maybe_unused]] MatrixReader& reader,
                              [[maybe_unused]] const MatrixDescriptor& from,
                              [[maybe_unused]] int first, [[maybe_unused]] int count,
                              [[maybe_unused]] Value* out, [[maybe_unused]] int row_step,
                              [[maybe_unused]] int k_step) {
    if constexpr (kBits == 16) {  // of other types operands are K-major
      for (int k = 0; k < kK; ++k) {
        for (int row = 0; row < count; row += 8) {
          std::byte chunk[16];
          reader.mn_major(from, static_cast<std::uint32_t>((first + row) / 8),
                          static_cast<std::uint32_t>(k), chunk);
          for (int i = 0; i < 8; ++i) {
            out[(row + i) * row_step + k * k_step] = element_at<kElement>(chunk, i);
          }
        }
      }
    }
  }
};

template <Element kA, Element kB>
void compute(Warp& warp, const WgmmaExtra& wgmma, const MatrixWork& work) {
  using Value = ElementValue<kA>;
  constexpr int k = SharedOperand<kA>::kK;
  alignas(64) Value a[kMatrixRows * k];
  alignas(64) Value b[k * kMostColumns];
  alignas(64) Value c[kMatrixRows * kMostColumns];
  const Block& block = warp.block();
  MatrixReader reader(block.cluster(), block.rank(), work.operation.get());
  if (wgmma.a_in_registers) {
    Fragments<kA>::load_a(warp, wgmma.a, kMatrixRows / kQuads, k, a);
  } else {
    SharedOperand<kA>::load(reader, MatrixDescriptor::of(work.a), wgmma.transpose_a,
                            warp.index() % kWarps * kMatrixRows, kMatrixRows, a, k, 1);
  }
  const int columns = wgmma.columns;
  SharedOperand<kB>::load(reader, MatrixDescriptor::of(work.b), wgmma.transpose_b, 0, columns, b, 1,
                          columns);
  if (wgmma.negate) {
    for (Value& value : a) value = -value;
  }
  const AccumulatorShape shape{kMatrixRows / kQuads, columns};
  const bool half = wgmma.accumulator == Accumulator::f16;
  if (!work.accumulate) {
    std::fill_n(c, kMatrixRows * columns, Value{});
  } else if constexpr (kA >= Element::s8) {
    load_accumulators(warp, wgmma.d, shape, c);
  } else {
    half ? load_accumulators_f16(warp, wgmma.d, shape, c)
         : load_accumulators(warp, wgmma.d, shape, c);
  }
  if constexpr (kA >= Element::s8) {
    multiply_add(a, b, c, k, columns, wgmma.accumulator == Accumulator::s32_saturated);
    store_accumulators(warp, wgmma.d, shape, c);
  } else {
    constexpr bool fp8 = kA == Element::e4m3 || kA == Element::e5m2;
    multiply_add({kLeastNormal<kA>, kLeastNormal<kB>, half, fp8}, a, b, c, k, columns);
    half ? store_accumulators_f16(warp, wgmma.d, shape, c)
         : store_accumulators(warp, wgmma.d, shape, c);
  }
}

void check_warpgroup(const Warp& warp) {
  const auto needed = static_cast<std::size_t>((warp.index() / kWarps + 1) * kWarps);
  if (warp.block().warps().size() >= needed) return;
  raise(Fault::divergence, "wgmma needs whole warpgroups of four warps; warp " +
                               std::to_string(warp.index()) + " belongs to none");
}

std::uint64_t uniform_descriptor(const Warp& warp, Ref ref, const char* which) {
  const std::uint64_t* lanes = warp.u64(ref);
  for (int lane = 1; lane < kLanes; ++lane) {
    if (lanes[lane] == lanes[0]) continue;
    raise(Fault::divergence,
          std::string("wgmma: the descriptor of ") + which + " differs between lanes of a warp",
          lane);
  }
  return lanes[0];
}

Flow run_wgmma(Warp& warp, const Op& op, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  check_warpgroup(warp);
  const WgmmaExtra& wgmma = extra_of(warp, op);
  const Mask scale_d = wgmma.scale_d == kNoRef ? 0 : warp.predicate(wgmma.scale_d);
  const Mask accumulate = scale_d ^ wgmma.scale_d_flips;
  if (accumulate != 0 && accumulate != kAllLanes) {
    raise(Fault::divergence, "wgmma: scale-d differs between lanes of a warp");
  }
  MatrixWork work;
  work.op = &op;
  work.accumulate = accumulate != 0;
  if (!wgmma.a_in_registers) work.a = uniform_descriptor(warp, wgmma.a_descriptor, "A");
  work.b = uniform_descriptor(warp, wgmma.b_descriptor, "B");
  MatrixDescriptor::of(work.a);  // faults belong to this instruction, not to the wait
  MatrixDescriptor::of(work.b);
  const MatrixRegisters& table = matrix_registers(warp);
  std::uint16_t d[kMostColumns / 2], a[4];
  const auto id_of = [&](std::uint32_t reg) {
    return reg == kNoRef ? MatrixRegisters::kNone : table.id_of[reg];
  };
  std::ranges::transform(wgmma.d_registers, d, id_of);
  std::ranges::transform(wgmma.a_registers, a, id_of);
  const std::uint32_t shape =
      static_cast<std::uint32_t>(wgmma.columns) * 4 + static_cast<std::uint32_t>(wgmma.accumulator);
  claim_registers(warp, std::span(d).first(wgmma.d_registers.size()),
                  std::span(a).first(wgmma.a_registers.size()), shape);
  issue(warp, std::move(work));
  return Flow::next;
}

Flow run_fence(Warp& warp, const Op&, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  fence_matrix(warp);
  return Flow::next;
}
Flow run_commit(Warp& warp, const Op&, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  commit_matrix(warp);
  return Flow::next;
}
Flow run_wait(Warp& warp, const Op& op, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  wait_matrix(warp, static_cast<std::uint64_t>(op.immediate));
  return Flow::next;
}

struct Kind {
  std::string_view a, b;
  Compute compute;
  std::string_view k;
  bool integer, half_accumulator, transposable;
};
using enum Element;
constexpr Kind kKinds[] = {
    {"f16", "f16", compute<f16, f16>, "k16", false, true, true},
    {"bf16", "bf16", compute<bf16, bf16>, "k16", false, false, true},
    {"tf32", "tf32", compute<tf32, tf32>, "k8", false, false, false},
    {"e4m3", "e4m3", compute<e4m3, e4m3>, "k32", false, true, false},
    {"e4m3", "e5m2", compute<e4m3, e5m2>, "k32", false, true, false},
    {"e5m2", "e4m3", compute<e5m2, e4m3>, "k32", false, true, false},
    {"e5m2", "e5m2", compute<e5m2, e5m2>, "k32", false, true, false},
    {"s8", "s8", compute<s8, s8>, "k32", true, false, false},
    {"s8", "u8", compute<s8, u8>, "k32", true, false, false},
    {"u8", "s8", compute<u8, s8>, "k32", true, false, false},
    {"u8", "u8", compute<u8, u8>, "k32", true, false, false},
};

// The N of m64nNk…, or 0 for what is no such shape.
int columns_of(std::string_view shape, const Kind& kind) {
  if (!shape.starts_with("m64n") || !shape.ends_with(kind.k)) return 0;
  const std::string_view digits = shape.substr(4, shape.size() - 4 - kind.k.size());
  int columns = 0;
  for (char digit : digits) {
    if (digit < '0' || digit > '9' || columns > kMostColumns) return 0;
    columns = columns * 10 + (digit - '0');
  }
  if (columns < 8 || columns > kMostColumns || columns % 8 != 0) return 0;
  // Integers: 8, 24 and multiples of 16.
  if (kind.integer && columns % 16 != 0 && columns != 8 && columns != 24) return 0;
  return columns;
}

bool negated(const Decoder& decoder, const Operand& operand) {
  const std::int64_t scale = decoder.literal(operand);
  if (scale != 1 && scale != -1) decoder.fail("imm-scale must be 1 or -1");
  return scale < 0;
}
bool transposed(const Decoder& decoder, const Operand& operand) {
  const std::int64_t value = decoder.literal(operand);
  if (value != 0 && value != 1) decoder.fail("imm-trans must be 0 or 1");
  return value != 0;
}

void take_vector(Decoder& decoder, const Operand& operand, std::size_t count, const char* what,
                 std::vector<Ref>& refs, std::vector<std::uint32_t>& registers) {
  if (!operand.is(Operand::Kind::vector) || operand.items.size() != count) {
    decoder.fail(std::string("wgmma: ") + what + " needs a vector of " + std::to_string(count) +
                 " registers");
  }
  for (const Operand& item : operand.items) {
    if (!item.is(Operand::Kind::reg)) decoder.fail("wgmma takes registers only");
    if (std::ranges::find(registers, item.reg) != registers.end()) {
      decoder.fail("wgmma: " + std::string(item.name) + " stands twice in a vector");
    }
    refs.push_back(decoder.source(item, Type::b32));
    registers.push_back(item.reg);
  }
}

// A predicate, which may be negated, or 0 or 1.
void take_scale_d(Decoder& decoder, const Operand& operand, WgmmaExtra& wgmma) {
  if (operand.is(Operand::Kind::integer)) {
    if (operand.value != 0 && operand.value != 1) decoder.fail("wgmma: scale-d must be 0 or 1");
    wgmma.scale_d_flips = operand.value != 0 ? kAllLanes : 0;
    return;
  }
  wgmma.scale_d = decoder.predicate(operand);
  if (wgmma.scale_d == kNoRef) decoder.fail("wgmma: scale-d must be a predicate, 0 or 1");
  wgmma.scale_d_flips = operand.negated ? kAllLanes : 0;
}

// d, a, b, scale-d, and what the kind has of imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b.
void decode_operands(Decoder& decoder, const Instruction& instruction, const Kind& kind,
                     WgmmaExtra& wgmma) {
  const auto& operands = instruction.operands;
  if (operands.size() < 4) decoder.expect_operands(instruction, 4, 8);
  wgmma.a_in_registers = operands[1].is(Operand::Kind::vector);
  const std::size_t transposes = kind.transposable ? (wgmma.a_in_registers ? 1 : 2) : 0;
  const std::size_t count = 4 + (kind.integer ? 0 : 2) + transposes;
  decoder.expect_operands(instruction, count, count);
  const bool half = wgmma.accumulator == Accumulator::f16;
  take_vector(decoder, operands[0], static_cast<std::size_t>(wgmma.columns / (half ? 4 : 2)), "D",
              wgmma.d, wgmma.d_registers);
  if (wgmma.a_in_registers) {
    take_vector(decoder, operands[1], 4, "A", wgmma.a, wgmma.a_registers);
  } else {
    wgmma.a_descriptor = decoder.source(operands[1], Type::b64);
  }
  wgmma.b_descriptor = decoder.source(operands[2], Type::b64);
  take_scale_d(decoder, operands[3], wgmma);
  if (!kind.integer) {
    wgmma.negate = negated(decoder, operands[4]) != negated(decoder, operands[5]);
  }
  if (transposes == 2) wgmma.transpose_a = transposed(decoder, operands[6]);
  if (transposes > 0) wgmma.transpose_b = transposed(decoder, operands[5 + transposes]);
}

// .mma_async.sync.aligned.shape{.satfinite}.dtype.atype.btype
void decode_mma_async(Decoder& decoder, const Instruction& instruction, ModifierReader& modifiers,
                      Op& op) {
  if (!modifiers.take("sync") || !modifiers.take("aligned")) decoder.unknown();
  const std::string_view shape = modifiers.next();
  const bool saturated = modifiers.take("satfinite");
  const std::string_view d = modifiers.next(), a = modifiers.next(), b = modifiers.next();
  const auto* kind =
      std::ranges::find_if(kKinds, [&](const Kind& row) { return row.a == a && row.b == b; });
  if (kind == std::end(kKinds) || !modifiers.done()) decoder.unknown();
  auto wgmma = std::make_unique<WgmmaExtra>();
  wgmma->compute = kind->compute;
  wgmma->columns = columns_of(shape, *kind);
  if (wgmma->columns == 0) decoder.unknown();
  if (kind->integer && d == "s32") {
    wgmma->accumulator = saturated ? Accumulator::s32_saturated : Accumulator::s32;
  } else if (!kind->integer && !saturated && d == "f32") {
    wgmma->accumulator = Accumulator::f32;
  } else if (kind->half_accumulator && !saturated && d == "f16") {
    wgmma->accumulator = Accumulator::f16;
  } else {
    decoder.unknown();
  }
  decode_operands(decoder, instruction, *kind, *wgmma);
  op.run = run_wgmma;
  op.extra = decoder.keep(std::move(wgmma));
}

}  // namespace

void execute_product(Warp& warp, const MatrixWork& work) {
  const WgmmaExtra& wgmma = extra_of(warp, *work.op);
  wgmma.compute(warp, wgmma, work);
}

void decode_wgmma(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (decoder.program().module->target != "sm_90a") {
    decoder.fail("wgmma needs .target sm_90a, not " +
                 std::string(decoder.program().module->target));
  }
  ModifierReader modifiers(instruction);
  const std::string_view form = modifiers.next();
  if (form == "mma_async") return decode_mma_async(decoder, instruction, modifiers, op);
  if (!modifiers.take("sync") || !modifiers.take("aligned") || !modifiers.done()) {
    decoder.unknown();
  }
  const bool waits = form == "wait_group";
  decoder.expect_operands(instruction, waits ? 1 : 0, waits ? 1 : 0);
  if (form == "fence") {
    op.run = run_fence;
  } else if (form == "commit_group") {
    op.run = run_commit;
  } else if (waits) {
    op.immediate = decoder.literal(instruction.operands[0]);
    if (op.immediate < 0) decoder.fail("wgmma.wait_group needs a number of groups");
    op.run = run_wait;
  } else {
    decoder.unknown();
  }
}

}  // namespace kiln::runtime::emulator
