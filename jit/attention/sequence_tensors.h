// The tensors that say where the sequences of a call are, which only the kernel reads.
#pragma once

#include "jit/attention/problem.h"
#include "kiln/varlen.h"
#include "templates/attention/params.h"

namespace kiln {

inline const TensorView kNoTensor{};
inline const ContextParallel kNoContext{};

struct SequenceTensors {
  const TensorView& cu_seqlens_q = kNoTensor;
  const TensorView& cu_seqlens_k = kNoTensor;
  const TensorView& seqused_k = kNoTensor;
  const char* seqused_name = "seqused_k";  // the operations call it differently
  const TensorView& block_table = kNoTensor;
  const TensorView& kv_indptr = kNoTensor;
  const TensorView& kv_indices = kNoTensor;
  const TensorView& cache_batch_idx = kNoTensor;
  const TensorView& cache_leftpad = kNoTensor;
  const TensorView& causal_each = kNoTensor;
  const TensorView& tree_mask = kNoTensor;
  const ContextParallel& context = kNoContext;
  const TensorView& plan = kNoTensor;
  int new_keys = 0;           // of each sequence, which seqused_k does not count
  bool rotates = false;       // queries are read from out, into which a launch before rotates them
  bool same_lengths = false;  // of all sequences, as k's shape tells

  bool is_paged() const { return block_table.given() || kv_indices.given() || kv_indptr.given(); }
};

// Divides by `by`, 1 to 2^30, as a product.
AttentionDivisor divisor_of(std::int64_t by);

// Sets what a call over sequences tells its kernels of all of them. Their keys lie in `entries`
// matrices, or pages, of `rows` rows.
void set_sizes(const AttentionProblem& problem, std::int64_t rows, std::int64_t entries,
               AttentionVarlenParams& params);

// Whether the tensors that name the places of keys in a cache go together.
void check_places(const SequenceTensors& sequences, const AttentionProblem& problem);
void set_places(const SequenceTensors& sequences, AttentionVarlenParams& params);
void add_places(const SequenceTensors& sequences, AttentionProblem& problem);

// The most pages that a sequence may have; 1 where a cache has none.
std::int64_t most_pages(const TensorView& block_table, const TensorView& kv_indices);
// How many new keys each sequence has.
int new_keys_of(const KvCacheOptions& options, const AttentionProblem& problem);
// Whether rotated queries fit the rows of out.
void check_rotated(const TensorView& q, const TensorView& out, const AttentionProblem& problem);
// The flags of sequences, which the mask reads: see AttentionProblem::causal_each.
void check_causal_each(const TensorView& flags, bool causal, AttentionProblem& problem);
// A word for each query of q, which the mask reads: see AttentionProblem::tree_mask.
void check_tree_mask(const TensorView& q, const SequenceTensors& sequences,
                     const AttentionOptions& options, AttentionProblem& problem);

}  // namespace kiln
