// Which of the built-in kernels the tests compile and run. Of an arch: a cover, that is for each
// config row every value of every property that occurs with it, in one kernel at least; and of the
// others a sample, which KILN_TEST_SEED decides. It also decides which rows have their full cover
// (the others have one kernel each): of sm_90 a twelfth of the rows of attention and GEMM and a
// quarter of the other families', of the other archs half as many. It decides which of these archs
// has a row, as they share them, and which third of attention's dtypes of caches, masks and sinks
// and of its padded head dims has its turn. With KILN_TEST_FULL=1: all kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/op/specialization.h"

namespace kiln::testing {

// Indices, ascending, of items that have among them every pair that any item has: greedily, so few.
std::vector<std::size_t> cover(std::span<const std::vector<std::string>> items);

// Whether the cover of an arch has no kernel of this one's config row: all archs but sm_90 run the
// portable kernels alone, which sm_90 runs too. They share the rows among them, by the seed.
bool rests(const Specialization& spec);

// Whether the cover has one kernel for this one's config row, as it is another's turn.
bool waits(const Specialization& spec);

// The pairs of a kernel's config row and a property that the cover must have with this seed:
// "gemm gemm/gemm.cuh 0 12, layout="nt"". None where the row rests.
std::vector<std::string> row_pairs(const Specialization& spec);

struct KernelList {
  std::vector<Specialization> cover;
  std::vector<Specialization> sample;  // of those that are not in the cover
  std::size_t others = 0;              // neither
};
KernelList kernel_list(int arch);
// What the tests take of it: the cover and the sample, with KILN_TEST_FULL=1 all kernels.
std::vector<Specialization> tested_kernels(int arch);

// Whether KILN_TEST_FULL asks for everything.
bool tests_all();
// KILN_TEST_SEED, "0" where that is not set.
std::string test_seed();
// A number that a seed and a text decide, the same on every machine.
std::uint64_t seeded(std::string_view seed, std::string_view text);

}  // namespace kiln::testing
