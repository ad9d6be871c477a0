// Tensors -> problem: every argument error ends here, in one sentence. A problem holds what is
// baked into the kernel (traits), what chooses the config row, and the packed arguments.
#pragma once

#include <string_view>

#include "jit/call_arguments.h"
#include "jit/specialization.h"

namespace kiln {

// What messages call the operation and its inputs.
struct AttentionNames {
  const char* op = "flash_attention";
  const char* q = "q";
  const char* k = "k";
  const char* v = "v";
  const char* like_q = " like q";
};

struct AttentionProblem {
  AttentionNames names;
  AttentionTraits traits;
  int device_ordinal = 0;
  int batch = 0, heads = 0, heads_kv = 0, len_q = 0, len_kv = 0;
  int keys = 0;              // the most that one query sees
  bool may_be_null = false;  // set before the checks by a plan or an explanation: nothing runs yet
  const Variant* variant = nullptr;
  CallArguments arguments;

  bool empty() const { return batch == 0 || heads == 0 || len_q == 0; }
};

struct GemmProblem {
  GemmTraits traits;
  int device_ordinal = 0;
  int m = 0, n = 0, k = 0, batch = 0;  // n: columns of b, two for each of a gated output
  bool may_be_null = false;            // as above
  std::string_view epilogue;
  std::optional<GemmTile> tile;
  CallArguments arguments;

  bool empty() const { return m == 0 || n == 0 || batch == 0; }
};

// Fill `problem` (not returned by value: the argument block is a kilobyte). Throw
// std::invalid_argument or TypeError.
void check_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                     AttentionProblem& problem);
void check_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options, GemmProblem& problem);

}  // namespace kiln
