// The sums of the tensor cores.
//
// The model, after what was published of Hopper's behaviour: within one block of k (16 elements of
// f16 and bf16, 8 of tf32, 32 of the 8-bit floats) products are exact; products and accumulator are
// aligned to the largest exponent among them and cut there to a number of fractional bits, toward
// zero; they are summed exactly; the sum is cut toward zero to the accumulator's own fractional
// bits. A product's exponent is the sum of its factors' exponents.
//
// f16, bf16, tf32: 25 fractional bits in the sum, 23 in the result (all that f32 has).
// e4m3, e5m2: 13 and 13, so that a long sum without promotion loses what hardware loses.
// f16 accumulators: the f32 result rounded to nearest even.
// Not modelled: differences between sm_80 and sm_90 (smaller blocks), the signs of zero sums.
// Terms below 2^-125 of an otherwise tiny sum may be cut.
#pragma once

#include <cstdint>

namespace kiln::runtime::emulator {

inline constexpr int kSumFractionBits = 25;
inline constexpr int kSumResultBits = 23;
inline constexpr int kFp8SumFractionBits = 13;
inline constexpr int kFp8SumResultBits = 13;

inline constexpr int kMatrixRows = 16;  // of A that one warp multiplies

// c[m][n] += a[m][k] * b[k][n], all rows contiguous: a is [16][k], b is [k][columns], c is
// [16][columns]. `columns` is a multiple of 8; k is one block of the model. 32-byte alignment.
void multiply_add(const float* a, const float* b, float* c, int k, int columns);
void multiply_add_fp8(const float* a, const float* b, float* c, int k, int columns);
// Sums wrap at 32 bits, or are clamped.
void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, int k, int columns,
                  bool saturate);

}  // namespace kiln::runtime::emulator
