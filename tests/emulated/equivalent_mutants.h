// Mutants that behave like the original, and why.
#pragma once

#include <span>
#include <string_view>

#include "jit/specialization.h"
#include "tests/emulated/mutation.h"

namespace kiln::testing {

// The reason why a mutant is equivalent to its original, or empty when there is none known.
// `all`: the kernel's mutants, in the order of the text.
std::string_view why_equivalent(Family family, const Mutant& mutant, std::span<const Mutant> all);

}  // namespace kiln::testing
