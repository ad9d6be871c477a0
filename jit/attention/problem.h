// Attention's call, checked: what is baked into its kernel (traits.h), what chooses the config row,
// and the packed arguments. Every argument error ends in these checks, in one sentence.
#pragma once

#include <array>

#include "jit/attention/element_bounds.h"
#include "jit/attention/traits.h"
#include "jit/op/launch.h"
#include "kiln/attention.h"
#include "templates/bound_elements/params.h"

namespace kiln {

// Messages call the operation and its inputs by these names.
struct AttentionNames {
  const char* op = "flash_attention";
  const char* q = "q";
  const char* k = "k";
  const char* v = "v";
};

struct TunedAttention;

// A tensor of a mask, of whose elements a launch ahead may compute bounds: see element_bounds.h.
struct BoundedArgument {
  BoundedTensor dimensions;
  const TensorView* view;
  std::size_t offset;  // of the pointer to its bounds in the argument block
  int number;          // of the tensor among the call's
  std::int64_t first;  // of its elements, the one at position 0 of entry 0
  int entries, length;
};

struct AttentionProblem : Problem {
  AttentionNames names;
  AttentionTraits traits;
  int batch = 0, heads = 0, heads_kv = 0, len_q = 0, len_kv = 0;
  int keys = 0;              // the most that one query sees
  bool may_be_even = false;  // a variant's mask may leave all queries as many
  std::size_t bounded_count = 0;
  std::array<BoundedArgument, kMostBoundedTensors> bounded;
  // Where sequences have lengths of their own, len_q and len_kv are bounds, and these say how many
  // queries all sequences have, and that no two CTAs share the keys of a query tile.
  std::int64_t tokens = 0;
  std::int64_t key_tokens = 0;  // keys of all sequences, which packed ones say; 0: unknown
  bool whole_tiles = false;
  bool padded_keys = false;                 // a cache_leftpad is given
  const TensorView* causal_each = nullptr;  // which of them are causal, if the call says so
  const TensorView* tree_mask = nullptr;    // which of the last keys each query sees, likewise
  // The plan of the step, or the one that the call makes, see plan.h.
  const TensorView* plan = nullptr;
  bool makes_plan = false;
  bool ignores_plan = false;    // it was made for another kernel, see are_as_planned()
  std::uint64_t plan_seed = 0;  // of the plan's key
  std::int64_t plan_words = 0;  // resolve() counts them
  // resolve() sets the entry of the tuning table that named the row; it is null where none did.
  const TunedAttention* measured = nullptr;

  explicit AttentionProblem(const AttentionNames& called = {}) : names(called) { op = called.op; }
  bool empty() const {
    const bool has_queries = traits.storage == Storage::dense ? len_q != 0 : tokens != 0;
    return batch == 0 || heads == 0 || !has_queries;
  }
};

// Fills `problem`. Throws std::invalid_argument or TypeError.
void check_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                     AttentionProblem& problem);

// Completes the recipe: the kernel, its grid, and how far the keys of a tile are split, which takes
// a workspace and so the caller's leave.
void resolve(AttentionProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const AttentionProblem& problem);

}  // namespace kiln
