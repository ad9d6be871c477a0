// Numbers of every dtype, as a kernel's problem and its judge see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "kiln/tensor.h"

namespace kiln::testing {

// The number that an element holds.
float value_at(const std::byte* at, DType dtype);

// Random numbers that every dtype and tf32 hold exactly: multiples of 1/64 in [-1, 1]. 8-bit floats
// hold fewer of these: from 1/32 on, of any digits, or, of e8m0, powers of two.
std::uint32_t random_bits(DType dtype, std::mt19937& random);

}  // namespace kiln::testing
