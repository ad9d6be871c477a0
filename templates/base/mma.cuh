// Warp-wide matrix products of 16 x 8 tiles (mma.sync) and the loads of their operands.
//
// Fragments of one warp (lane = 4 * g + t):
//   A 16 x 16 (16-bit): a[0] = (row g, cols 2t..2t+1), a[1] = row g + 8, a[2], a[3] = cols + 8
//   B 16 x 8  (16-bit): b[0] = (rows 2t..2t+1, col g), b[1] = rows + 8
//   C 16 x 8  (fp32):   c[0..1] = (row g, cols 2t..2t+1), c[2..3] = row g + 8
//   tf32, K = 8: A a[0] = (g, t), a[1] = (g + 8, t), a[2] = (g, t + 4), a[3] = (g + 8, t + 4);
//                B b[0] = (t, g), b[1] = (t + 4, g)
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Loads four 8 x 8 matrices of 16-bit elements; lane l addresses row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrix_x4_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Computes c += a * b with K = 16 and fp32 accumulation.
template <class T>
__device__ __forceinline__ void mma_16816(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(is_same<T, f16> || is_same<T, bf16>, "mma_16816: the element must be f16 or bf16");
  if constexpr (is_same<T, f16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Computes c += a * b, K = 16, f16 accumulation: c[0] = (row g, cols 2t..2t+1), c[1] = row g + 8.
__device__ __forceinline__ void mma_16816_f16(u32 (&c)[2], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, "
      "{%0,%1};"
      : "+r"(c[0]), "+r"(c[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Computes c += a * b with K = 8, tf32 operands (see to_tf32) and fp32 accumulation.
__device__ __forceinline__ void mma_1688_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Rounds to nearest; without this the tensor core truncates, which doubles the error.
__device__ __forceinline__ u32 to_tf32(u32 float_bits) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(float_bits)));
  return y;
}

}  // namespace kiln
