// Mutants that the emulated device cannot tell from the original, and why.
#pragma once

#include <string_view>

#include "jit/op/specialization.h"
#include "tests/emulator/mutation.h"

namespace kiln::testing {

// Why the device does not model what the mutant breaks, or empty: such a mutant is not run.
std::string_view why_not_modelled(const Specialization& spec, const Mutant& mutant,
                                  std::string_view ptx);

// The reason why a mutant is equivalent to its original, or empty when none is known. `ptx`: the
// original.
std::string_view why_equivalent(const Specialization& spec, const Mutant& mutant,
                                std::string_view ptx);

}  // namespace kiln::testing
