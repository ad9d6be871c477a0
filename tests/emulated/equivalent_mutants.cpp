#include "tests/emulated/equivalent_mutants.h"

namespace kiln::testing {

std::string_view why_equivalent(Family, const Mutant&, std::span<const Mutant>) { return {}; }

}  // namespace kiln::testing
