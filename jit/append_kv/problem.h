// The call that appends to a cache, checked: what is baked into its kernel (traits), what chooses
// the config row, and the packed arguments. Every argument error ends in these checks.
#pragma once

#include <cstdint>

#include "jit/op/launch.h"
#include "kiln/append_kv.h"

namespace kiln {

// The kernels are specialised for these properties, as Traits.
struct AppendTraits {
  DType input = DType::bf16;
  DType cache = DType::bf16;
  DType weight = DType::none;  // of queries or keys, or both
  DType table = DType::none;   // of cos and sin
  bool query = false;
  bool interleaved = false;
  std::uint16_t head_dim = 128, head_dim_v = 128;
  std::uint16_t rotary = 0;  // elements of a head that rotate
  std::uint16_t vector = 8;  // elements that an access has of each tensor: 1, 2, 4 or 8
  bool sequences = false;    // tokens follow their sequence's keys, and have no slots of their own
  std::uint8_t reserved[33] = {};

  bool operator==(const AppendTraits&) const = default;
};
static_assert(is_traits<AppendTraits>);

// Whether heads consist of such vectors, as the template wants them.
bool admits_vector(const AppendTraits& traits, int vector);

struct AppendProblem : Problem {
  AppendTraits traits;
  int tokens = 0, heads = 0, heads_kv = 0;

  AppendProblem() { op = "append_kv"; }
  long long rows() const { return static_cast<long long>(tokens) * (heads + 2 * heads_kv); }
  bool empty() const { return rows() == 0; }
};

// Fills `problem`. Throws std::invalid_argument or TypeError.
void check_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                     const TensorView& v_cache, const TensorView& slot_mapping,
                     const AppendKvOptions& options, AppendProblem& problem);

// Completes the recipe, of one launch.
void resolve(AppendProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const AppendProblem& problem);

}  // namespace kiln
