// Appending the new tokens of sequences behind the keys that each has in the cache: the first
// launch of an operation that attends to them then.
#pragma once

#include "jit/append_kv/problem.h"

namespace kiln {

// Those that are not given are null views. Messages call key and value k_new and v_new, cos and sin
// rotary_cos and rotary_sin.
struct AppendSequences {
  const TensorView &key, &value;        // [sequences, len_new, heads_kv, head_dim]
  const TensorView &k_cache, &v_cache;  // entries, or pages if one of the tables is given
  const TensorView& cache_seqlens;
  const TensorView &block_table, &kv_indptr, &kv_indices, &cache_batch_idx;
  const TensorView &cos, &sin;
  const TensorView &query, &query_out;  // [sequences, len_query, heads, head_dim], if there is cos
  bool interleaved = false;
  bool queries_advance = true;  // query i rotates as new key i, and not all as the first
};

// Fills `problem`, which has the name and the device of the operation. Requires: the caches, the
// tables, cache_seqlens and the queries are checked. Throws std::invalid_argument or TypeError.
void check_append_sequences(const AppendSequences& tensors, AppendProblem& problem);

}  // namespace kiln
