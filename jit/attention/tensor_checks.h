// Checks of single tensors that all forms of attention share.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "jit/attention/problem.h"
#include "jit/op/checks.h"

namespace kiln {

// The dtype of outputs that are not given.
inline DType output_dtype(DType q) { return is_f8(q) ? DType::bf16 : q; }

inline constexpr std::int64_t kMaxLength =
    (std::int64_t{1} << 30) - 1;  // q + right must fit an int

// Whether the kernel may read or write the rows of `t` by vectors of so many bytes. Strides of
// dimensions of one entry are never used. Kernels form addresses of vectors of bytes with strides
// of 32 bits.
inline bool has_vectors(const TensorView& t, int bytes = kAttentionVectorBytes) {
  const int elements = bytes / size_of(t.dtype);
  bool aligned = is_aligned(t, bytes);
  for (int i = 0; i + 1 < t.rank; ++i) {
    const std::int64_t stride = t.strides[i];
    const bool fits =
        stride % elements == 0 && (elements == 8 || stride == static_cast<int>(stride));
    aligned = aligned && (t.shape[i] <= 1 || fits);
  }
  return aligned;
}

[[noreturn]] void refuse_head_dim(Subject subject, std::int64_t dim);
[[noreturn]] void refuse_head_dims(Subject subject, std::int64_t dim, std::int64_t dim_v);
inline void check_head_dims(Subject q, Subject v, std::int64_t dim, std::int64_t dim_v) {
  const auto check = [](Subject subject, std::int64_t size) {
    const bool sound = (size >= 8 && size <= kMostHeadDim && size % 8 == 0) || size == kWideHeadDim;
    if (!sound) [[unlikely]]
      refuse_head_dim(subject, size);
  };
  check(q, dim), check(v, dim_v);
  if (!may_meet(dim, dim_v)) [[unlikely]]
    refuse_head_dims(v, dim, dim_v);
}

[[noreturn]] void refuse_length(Subject subject, std::int64_t size, const char* what);
inline int check_length(Subject subject, std::int64_t size, const char* what) {
  if (size > kMaxLength) [[unlikely]]
    refuse_length(subject, size, what);
  return static_cast<int>(size);
}

[[noreturn]] void refuse_heads(Subject subject, const char* k, std::int64_t heads,
                               std::int64_t heads_kv);
// Query heads are shared evenly by KV heads.
inline void check_heads(Subject subject, const char* k, std::int64_t heads, std::int64_t heads_kv) {
  if (heads_kv == 0 ? heads != 0 : heads % heads_kv != 0) [[unlikely]]
    refuse_heads(subject, k, heads, heads_kv);
}

// A tensor of lengths, offsets, pages or flags, if it is given. Without a shape, the caller checks
// it.
void check_indices(const char* name, const TensorView& t, std::initializer_list<std::int64_t> shape,
                   const AttentionProblem& problem);

// Checks the log-sum-exps of a call that gives a tensor for them.
void check_lse(const TensorView& lse, std::initializer_list<std::int64_t> shape,
               const AttentionProblem& problem);

void check_layout(AttentionLayout layout, const char* op);
const char* layout_text(AttentionLayout layout);  // the dimensions of q, k, v and out by name

// The scale of a call: the caller's, or that of the head dim.
float checked_scale(Subject subject, std::optional<float> given, std::int64_t head_dim);

// The place of out among the call's tensors.
inline constexpr int kOutNumber = 3;

// Whether they may be read and written by vectors.
bool have_vectors(const TensorView& q, const TensorView& k, const TensorView& v,
                  const TensorView& out);
// Notes whether q, k, v and out, the call's first tensors, may be. Who makes a plan touches none.
void settle_alignment(const TensorView& q, const TensorView& k, const TensorView& v,
                      const TensorView& out, AttentionProblem& problem);

// Adds what comes after the tensors: the built-in options, then the user's variant.
void add_variants(const AttentionOptions& options, AttentionProblem& problem);

}  // namespace kiln
