// Matrix products of a warpgroup (128 threads) with operands in shared memory (wgmma, sm_90a).
//
// The host prints the instructions for just the shapes that a kernel uses (render_wgmma() in
// jit/op/wgmma_source.cpp), because inline assembly cannot take its operand list from a template
// parameter.
//
// In the accumulators of m64nNk*, d[4 j + 2 i + e] of lane 4 g + t of warp w is row 16 w + 8 i + g,
// column 8 j + 2 t + e.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Orders this thread's register accesses before the products that follow.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are in flight. The last wait before accumulators
// are read is the printed Products::finish(), which keeps the compiler from reading them earlier.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Returns the descriptor of an operand in shared memory with rows of 128 bytes, whose 16-byte
// chunks the copy engine's 128-byte swizzle permutes as SwizzledRows<8> does (base/layout.cuh).
// Every tile must be aligned to eight rows, 1024 bytes.
//
//   K major:  [rows of M or N][128 bytes of K]. A step of 32 bytes of K advances by 32 bytes, the
//             next 8 rows are 1024 bytes on.
//   MN major: blocks of [rows of K][64 elements of M or N], 16-bit elements only. A step of 16 of K
//             advances by 2048 bytes; the next 8 of K are 1024 bytes on, the next 64 of M or N
//             `block_bytes` on.
//
// The bits of the matrix descriptor (PTX ISA, "Asynchronous warpgroup-level matrix shared memory
// layout"): address / 16 in 0-13, leading byte offset / 16 in 16-29, stride / 16 in 32-45, swizzle
// in 62-63. The leading offset is read only if an operand is MN major and wider than a block.
__device__ __forceinline__ u64 operand_descriptor(u32 address, u32 block_bytes) {
  constexpr u64 kEightRows = 1024, kSwizzle128 = 1;
  return static_cast<u64>((address & 0x3ffff) >> 4) | static_cast<u64>(block_bytes >> 4) << 16 |
         kEightRows >> 4 << 32 | kSwizzle128 << 62;
}

// The low word alone, which is all that differs between operands in one layout, with the same value
// in all lanes: the shuffle tells ptxas so, which then computes the next steps' in uniform
// registers.
__device__ __forceinline__ u32 operand_descriptor_low(u32 address, u32 block_bytes) {
  return __shfl_sync(~0u, (address & 0x3ffff) >> 4 | (block_bytes >> 4) << 16, 0);
}

}  // namespace kiln
