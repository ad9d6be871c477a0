// The argument block of a call that appends to a cache, and the largest vectors that it admits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "jit/append_kv/problem.h"
#include "templates/append_kv/params.h"

namespace kiln {

struct AppendTensors {
  const TensorView &key, &value, &k_cache, &v_cache, &slot_mapping;
  const AppendKvOptions& options;
};

// Requires: checked, all but the traits' vector set, which this sets.
void set_append_arguments(const AppendTensors& tensors, AppendProblem& problem);

// One tensor of the call: what messages call it, where its pointer is, and how it is accessed.
enum class Accessed { by_elements, by_vectors, by_angles };
struct AppendArgument {
  const char* name;
  const TensorView* tensor;
  Use use;
  std::size_t pointer;
  Accessed accessed = Accessed::by_vectors;
};

// Sets the traits' vector to the largest that all of these admit.
void settle_vector(std::span<const AppendArgument> list, AppendTraits& traits);
// Adds those that are given. Requires: the argument block has its params, the traits their vector.
void add_append_arguments(std::span<const AppendArgument> list, AppendProblem& problem);

// The tensor is [tokens, heads, head_dim] or [sequences, tokens, heads, head_dim].
TokenStrides token_strides(const TensorView& tensor);
CacheStrides cache_strides(const TensorView& cache);

}  // namespace kiln
