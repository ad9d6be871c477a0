// wgmma's operands in shared memory: what a matrix descriptor describes. PTX ISA, "Shared memory
// matrix layout", "Strides", "Matrix descriptor format".
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

// Matrices are made of chunks of 16 bytes. K-major: a chunk holds neighbours in k of one row (of A;
// column, of B); eight rows and two chunks of k make a core. MN-major: a chunk holds eight
// neighbours in m or n for one k; eight of k make a core.
struct MatrixDescriptor {
  std::uint32_t address = 0;  // in the block's shared memory
  std::uint32_t leading = 0, stride = 0;
  std::uint32_t swizzle = 1;  // chunks of a swizzled row: 1 (none), 2, 4 or 8

  // Raises Fault::unknown_instruction for what is not modelled: a base offset.
  static MatrixDescriptor of(std::uint64_t bits);

  // The address of a chunk, swizzle applied. Only without swizzle do leading and stride change
  // their roles with the major direction; swizzled K-major operands have no leading stride.
  std::uint32_t k_major(std::uint32_t row, std::uint32_t chunk) const {
    const std::uint32_t core = row / 8 * stride;
    return swizzled(swizzle == 1 ? core + row % 8 * 16 + chunk * leading
                                 : core + row % 8 * swizzle * 16 + chunk * 16);
  }
  std::uint32_t mn_major(std::uint32_t chunk, std::uint32_t k) const {
    return swizzled(swizzle == 1 ? chunk * stride + k % 8 * 16 + k / 8 * leading
                                 : chunk % swizzle * 16 + chunk / swizzle * leading +
                                       k % 8 * swizzle * 16 + k / 8 * stride);
  }

 private:
  // The exclusive or is on bits of the absolute address, so that a descriptor may begin anywhere in
  // a swizzled row.
  std::uint32_t swizzled(std::uint32_t offset) const {
    const std::uint32_t at = address + offset;
    return at ^ (at >> 7 & (swizzle - 1)) << 4;
  }
};

// Reads chunks for one warp's product; with checks on as accesses of an asynchronous operation.
class MatrixReader {
 public:
  MatrixReader(Cluster& cluster, int rank, const Shadow::Operation* operation)
      : cluster_(cluster), rank_(rank), operation_(operation) {}

  // Rows [first, first + 8) of a K-major operand, all of k: 32 bytes each.
  using Rows = std::byte[8][32];
  void k_major(const MatrixDescriptor& from, std::uint32_t first, Rows& rows);
  // One chunk of an MN-major operand: elements [8 * chunk, 8 * chunk + 8) at k.
  void mn_major(const MatrixDescriptor& from, std::uint32_t chunk, std::uint32_t k,
                std::byte* sixteen);

 private:
  void copy(std::uint32_t address, std::byte* to);
  void note(std::uint32_t address, std::uint32_t bytes);

  Cluster& cluster_;
  int rank_;
  const Shadow::Operation* operation_;
};

}  // namespace kiln::runtime::emulator
