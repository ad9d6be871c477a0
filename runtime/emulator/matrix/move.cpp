// ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16-bit elements between shared memory and
// fragments. PTX ISA, "Warp-level matrix load / store / transpose instruction".
#include <cstring>

#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/matrix/matrix.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

constexpr int kEdge = 8;       // rows and columns of a matrix
constexpr int kRowBytes = 16;  // of shared memory: one address, one 128-bit access
constexpr std::uint8_t kTransposed = 1, kGeneric = 2;

using Matrix = std::uint16_t[kEdge][kEdge];

// Lane 4 * r + q of a fragment holds elements 2q and 2q + 1 of row r, or of column r.
void to_fragment(const Matrix& matrix, bool transposed, std::uint32_t* lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int r = lane / 4, q = lane % 4 * 2;
    const std::uint32_t low = transposed ? matrix[q][r] : matrix[r][q];
    const std::uint32_t high = transposed ? matrix[q + 1][r] : matrix[r][q + 1];
    lanes[lane] = low | high << 16;
  }
}
void from_fragment(const std::uint32_t* lanes, bool transposed, Matrix& matrix) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int r = lane / 4, q = lane % 4 * 2;
    (transposed ? matrix[q][r] : matrix[r][q]) = static_cast<std::uint16_t>(lanes[lane]);
    (transposed ? matrix[q + 1][r] : matrix[r][q + 1]) =
        static_cast<std::uint16_t>(lanes[lane] >> 16);
  }
}

// The bytes of one row: the lane of its number gives the address.
std::byte* row_bytes(Warp& warp, const Op& op, int row, AccessKind kind) {
  std::uint64_t address = op.size == 4 ? warp.u32(op.a)[row] : warp.u64(op.a)[row];
  address += static_cast<std::uint64_t>(op.immediate);
  if (op.size == 4) address &= 0xffffffffu;
  const Space space = op.flags & kGeneric ? Space::none : Space::shared;
  return access(warp, space, address, kRowBytes, kind, row);
}

Flow run_ldmatrix(Warp& warp, const Op& op, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  const std::span<const Ref> refs = warp.list(op);
  Matrix matrices[4];
  // All reads come before all writes: an address register may be overwritten.
  for (int row = 0; row < static_cast<int>(refs.size()) * kEdge; ++row) {
    std::memcpy(matrices[row / kEdge][row % kEdge], row_bytes(warp, op, row, AccessKind::read),
                kRowBytes);
  }
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (refs[i] == kNoRef) continue;
    to_fragment(matrices[i], (op.flags & kTransposed) != 0, warp.u32_out(refs[i]));
  }
  return Flow::next;
}

Flow run_stmatrix(Warp& warp, const Op& op, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  const std::span<const Ref> refs = warp.list(op);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    Matrix matrix;
    from_fragment(warp.u32(refs[i]), (op.flags & kTransposed) != 0, matrix);
    for (int row = 0; row < kEdge; ++row) {
      std::memcpy(row_bytes(warp, op, static_cast<int>(i) * kEdge + row, AccessKind::write),
                  matrix[row], kRowBytes);
    }
  }
  return Flow::next;
}

Flow run_movmatrix(Warp& warp, const Op& op, Mask mask) {
  if (!aligned(warp, mask)) return wait_for_lanes(warp);
  Matrix matrix;
  from_fragment(warp.u32(op.a), false, matrix);
  if (op.d != kNoRef) to_fragment(matrix, true, warp.u32_out(op.d));
  return Flow::next;
}

// .m8n8.x4{.trans}{.shared{::cta}}.b16 in any order, as ptxas takes them: flags; returns the number
// of matrices.
std::uint32_t decode_shape(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("sync") || !modifiers.take("aligned") || !modifiers.take("m8n8") ||
      !modifiers.take("b16")) {
    decoder.unknown();
  }
  const int count = modifiers.take_one_of({"x1", "x2", "x4"});
  if (count < 0) decoder.unknown();
  if (modifiers.take("trans")) op.flags |= kTransposed;
  if (modifiers.take_one_of({"shared", "shared::cta"}) < 0) op.flags |= kGeneric;
  modifiers.finish();
  op.type = Type::b16;
  return 1u << count;
}

void decode_registers(Decoder& decoder, std::pair<std::uint32_t, std::uint32_t> listed,
                      std::uint32_t count, Op& op) {
  if (listed.second != count) {
    decoder.fail("needs " + std::to_string(count) + " registers, not " +
                 std::to_string(listed.second));
  }
  op.list = listed.first;
  op.list_size = listed.second;
}

}  // namespace

void decode_ldmatrix(Decoder& decoder, const Instruction& instruction, Op& op) {
  const std::uint32_t count = decode_shape(decoder, instruction, op);
  decode_registers(decoder, decoder.destinations(instruction.operands[0], Type::b32), count, op);
  op.size = static_cast<std::uint8_t>(decoder.address(instruction.operands[1], op));
  op.run = run_ldmatrix;
}

void decode_stmatrix(Decoder& decoder, const Instruction& instruction, Op& op) {
  need_target(decoder, 90);
  const std::uint32_t count = decode_shape(decoder, instruction, op);
  decode_registers(decoder, decoder.sources(instruction.operands[1], Type::b32), count, op);
  op.size = static_cast<std::uint8_t>(decoder.address(instruction.operands[0], op));
  op.run = run_stmatrix;
}

void decode_movmatrix(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  if (instruction.text() != "movmatrix.sync.aligned.m8n8.trans.b16") decoder.unknown();
  op.d = decoder.destination(instruction.operands[0], Type::b32);
  op.a = decoder.source(instruction.operands[1], Type::b32);
  op.run = run_movmatrix;
}

}  // namespace kiln::runtime::emulator
