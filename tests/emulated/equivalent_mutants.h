// Mutants that behave like the original, and why.
#pragma once

#include <string_view>

#include "jit/specialization.h"
#include "tests/emulated/mutation.h"

namespace kiln::testing {

// The reason why a mutant is equivalent to its original, or empty when none is known. `ptx`: the
// original.
std::string_view why_equivalent(const Specialization& spec, const Mutant& mutant,
                                std::string_view ptx);

}  // namespace kiln::testing
