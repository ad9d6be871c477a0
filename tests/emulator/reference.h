// Textbook attention, GEMM, norms and merging in double precision, on row-major floats.
#pragma once

#include <vector>

#include "jit/append_kv/problem.h"
#include "jit/attention/problem.h"
#include "jit/gemm/problem.h"
#include "jit/merge_states/problem.h"
#include "jit/norm/problem.h"

namespace kiln::testing {

struct AttentionReference {
  AttentionTraits traits;
  int heads = 1, heads_kv = 1, len_q = 0, len_kv = 0;
  int window_left = -1, window_right = -1;  // of Mask::window
  float softcap = 0;
  double scale = 1;
  std::vector<float> q, k, v;        // [len, heads, dim]
  std::vector<float> slopes, sinks;  // [heads], or empty
  std::vector<float> attn_mask;      // [heads, len_q, len_kv], or empty
  // Where keys that are spread over devices lie in their sequence, and its length.
  std::vector<int> positions;
  int total = 0;
};
// [len_q, heads, head_dim_v]
std::vector<double> reference(const AttentionReference& problem);

struct GemmReference {
  GemmTraits traits;
  int m = 0, n = 0, k = 0;
  std::vector<float> a, b;            // [m, k], [k, n]; the layout in memory is the caller's
  std::vector<float> bias, residual;  // [n], like the result, or empty
  std::vector<float> scale_a;         // [1] or [m], or empty; of groups [m, k / 128]
  std::vector<float> scale_b;         // [1] or [n], or empty; of groups [k / 128, n], of blocks
                                      // [k / 128, n / 128]; all rounded up
};
// [m, n], or [m, n / 2] where it is gated
std::vector<double> reference(const GemmReference& problem);

struct NormReference {
  NormTraits traits;
  int rows = 0, columns = 0;
  float eps = 0, weight_offset = 0;
  std::vector<float> x, residual;   // [rows, columns]; no residual: empty
  std::vector<float> weight, bias;  // [columns], or empty
};
// [rows, columns], both: the sums of x and residual, and what becomes of such sums
std::vector<double> sums(const NormReference& problem);
std::vector<double> reference(const NormReference& problem);

struct MergeReference {
  int parts = 0, rows = 0, heads = 0, columns = 0;  // a row is a token's head
  std::vector<float> outs;                          // [parts, rows, columns]
  std::vector<float> lses;                          // [parts, rows], natural logarithms
  std::vector<float> sinks;                         // [heads], or empty
};
// [rows]; then [rows, columns]
std::vector<double> merged_lse(const MergeReference& problem);
std::vector<double> reference(const MergeReference& problem);

struct AppendReference {
  AppendTraits traits;
  int tokens = 0, heads = 0;
  float eps = 0, scale = 1;
  std::vector<std::int64_t> slots;      // [tokens], all different
  std::vector<std::int64_t> positions;  // [tokens], or empty: the slots are the positions
  std::vector<float> x;                 // [tokens, heads, head_dim]
  std::vector<float> weight;            // [head_dim], or empty
  std::vector<float> cos, sin;          // [tokens, angles], or empty
};
// [tokens, heads, head_dim]: normed and rotated; and by slots, divided by the scale, of keys or,
// where nothing computes, of values
std::vector<double> reference(const AppendReference& problem);
std::vector<double> cached(const AppendReference& problem, bool computes);

}  // namespace kiln::testing
