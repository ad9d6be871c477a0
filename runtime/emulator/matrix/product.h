// The sums of the tensor cores, bit for bit what was measured on an H200 (sm_90) with operands of
// all magnitudes, subnormals, cancelling terms, infinities and NaN among them.
//
// One instruction is one block of k (mma.sync: its own k; wgmma: 16 elements of f16 and bf16, 8 of
// tf32, 32 of the 8-bit floats). Products are exact. Products and accumulator are aligned to the
// largest exponent among them and cut there to a number of fractional bits, toward zero; they are
// summed exactly. A product's exponent is the sum of its factors' exponents (whatever the product
// of their mantissas), a subnormal's that of its format's smallest normal number; the largest
// exponent counts as -133 at least.
//
//                              fractional bits of the sum   result
// f16, bf16, tf32, f32 sums    25                           cut to f32's 23 bits, toward zero
// f16, f16 sums                25                           to nearest f16, once
// wgmma e4m3, e5m2, f32 sums   13                           cut to 13 bits, toward zero
// wgmma e4m3, e5m2, f16 sums   13                           to nearest f16, once
//
// mma.sync has no 8-bit floats there: multiply_add_fp8_as_f16. sm_80 and sm_89, which have smaller
// blocks and 8-bit products, are not modelled apart.
#pragma once

#include <cstdint>

namespace kiln::runtime::emulator {

inline constexpr int kSumFractionBits = 25;
inline constexpr int kSumResultBits = 23;
inline constexpr int kFp8SumFractionBits = 13;
inline constexpr int kFp8SumResultBits = 13;
inline constexpr int kLeastSumExponent = -133;

inline constexpr int kMatrixRows = 16;  // of A that one warp multiplies

struct ProductRule {
  float least_a, least_b;  // the smallest normal numbers of the operands' formats
  bool half = false;       // f16 accumulators
  bool fp8 = false;        // sums of 13 bits
};

// c[m][n] += a[m][k] * b[k][n], all rows contiguous: a is [16][k], b is [k][columns], c is
// [16][columns]. `columns` is a multiple of 8; k is one block, at most 32. 32-byte alignment. With
// f16 accumulators the results are rounded to odd, with all of f32's bits: rounding them to f16 is
// then rounding the sum.
void multiply_add(const ProductRule& rule, const float* a, const float* b, float* c, int k,
                  int columns);
// What sm_90 makes of mma.sync of 8-bit floats: two products of f16, of the elements 0 and 1 and of
// the elements 2 and 3 of every four in k, upon zero; then the accumulator is added, to nearest.
void multiply_add_fp8_as_f16(const float* a, const float* b, float* c, int k, bool half);
// Sums wrap at 32 bits, or are clamped.
void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, int k, int columns,
                  bool saturate);

}  // namespace kiln::runtime::emulator
