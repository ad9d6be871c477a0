// The run-time arguments of the kernel that merges partial results of attention, and its launch
// arithmetic, shared by host and device. Over the parts i of each token and head, in fp32:
//   m = max(lse[i]), w[i] = exp(lse[i] - m)
//   out = sum(w[i] * out[i]) / sum(w[i]), lse = m + log(sum(w[i]))
// and, with a sink, out * 1 / (1 + exp(sink - lse)). A part with an LSE of -inf or +inf saw no key
// and counts for nothing, whatever its result holds; without any other part, out is 0 and lse -inf.
#pragma once

namespace kiln {

// Distances between the parts, tokens and heads of a tensor, in elements.
struct MergeStrides {
  long long part, token, head;
};

struct MergeParams {
  const void* outs;   // [parts, tokens, heads, columns]
  const float* lses;  // of parts, tokens and heads
  const void* sinks;  // of heads; unused unless Config::kSinks
  void* out;          // [tokens, heads, columns]
  float* lse;         // null if not wanted
  MergeStrides outs_at, lses_at, out_at, lse_at;
  long long sinks_stride;
  int parts, tokens, heads, columns;  // columns may be 0, the others not; tokens * heads < 2^31
  float to_log2;                      // 1 / log(2) in the base of the LSEs
  float from_log2;                    // and its inverse
};
static_assert(sizeof(MergeParams) % 8 == 0, "keep the argument block a whole number of words");

constexpr int kMergeThreads = 256;

// Each group of `lanes` threads has a token's head.
constexpr long long merge_blocks(long long rows, int lanes) {
  const int rows_per_block = kMergeThreads / lanes;
  return (rows + rows_per_block - 1) / rows_per_block;
}

}  // namespace kiln
