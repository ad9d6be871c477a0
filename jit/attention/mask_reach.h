// The host reads this in a variant's text once: how far from themselves queries see, with the
// numbers of a call, which is to the choice of a kernel what a window's length is; and which
// tensors' elements are to be bounded. These decide about speed alone. It also says which
// tensors are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "jit/attention/element_bounds.h"
#include "jit/op/overlap.h"
#include "kiln/variant.h"

namespace kiln {

struct MaskReach {
  // Every visible pair has q - kv <= the number, or >=: a constant, parameters and multiples of
  // len_kv - len_q, added up.
  struct Bound {
    bool is_upper = false;
    std::int64_t constant = 0;
    int shift = 0;
    struct Term {
      std::size_t param = 0;  // among those of a list's variants
      int sign = 1;
    };
    std::vector<Term> terms{};
  };
  std::vector<Bound> bounds{};
  bool is_whole = true;  // these bounds are all that hides
  // The tensors of whose elements bounds may be computed, for each definition of a list.
  std::vector<std::vector<BoundedTensor>> bounded{};
  std::vector<Use> uses{};  // what the kernel does with the tensors of each definition

  // Adds those of a variant that has `params` parameters ahead of it in a list.
  void add(const MaskReach& other, std::size_t params);
};

// Reads the bounds from a conjunction's comparisons; there are none where the mask has another
// form.
MaskReach reach_of(const VariantDefinition& definition);

// The least and the largest q - kv of a visible pair, with the numbers of a call. `shift`: len_kv -
// len_q, if all sequences have the same.
struct Distances {
  std::int64_t low, high;
  bool are_all;  // that hides
};
Distances distances_of(const MaskReach& reach, std::span<const double> values,
                       std::optional<std::int64_t> shift);

}  // namespace kiln
