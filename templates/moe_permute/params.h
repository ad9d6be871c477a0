// The run-time arguments of the kernels that sort rows by experts and add them up again, and their
// launch arithmetic, shared by host and device. A pair is a token and one of its experts; pairs are
// numbered by token, then by k.
#pragma once

namespace kiln {

// Distances between the tokens of a tensor [tokens, top_k], and between those of a token, in
// elements.
struct PairStrides {
  long long token, k;
};

struct PermuteParams {
  const void* x;        // rows of row_bytes
  const void* experts;  // [tokens, top_k]; a number outside of [0, num_experts) is no expert
  void* out;     // rows of row_bytes: those of expert 0 in the order of their pairs, then 1 ..
  int* offsets;  // [num_experts]: where each expert's rows end
  int* inverse;  // [tokens, top_k]: the row of out of each pair, or -1
  int* counts;   // workspace: [CTAs, num_experts], the pairs of each; null in one launch
  long long x_row, out_row;  // bytes between rows
  PairStrides experts_at, inverse_at;
  long long offsets_stride;
  int tokens, top_k, num_experts;  // tokens may be 0; tokens * top_k is below 2^31
  int row_bytes;
  int tokens_each;  // of a CTA
  int reserved;
};
static_assert(sizeof(PermuteParams) % 8 == 0, "keep the argument block a whole number of words");

struct UnpermuteParams {
  const void* y;         // [rows, columns]
  const int* inverse;    // [tokens, top_k]: rows of y; a number outside of them counts for nothing
  const float* weights;  // [tokens, top_k]; unused unless Config::kWeights
  void* out;             // [tokens, columns]
  long long y_row, out_row;
  PairStrides inverse_at, weights_at;
  int tokens, top_k, rows, columns;
};
static_assert(sizeof(UnpermuteParams) % 8 == 0, "keep the argument block a whole number of words");

constexpr int kPermuteThreads = 512;
constexpr int kMostSortedExperts = 512;  // a thread has one
// A CTA that sorts alone reads all experts, so many at most.
constexpr long long kMostLonePairs = 16384;

constexpr int kUnpermuteThreads = 256;

// Each warp adds up 32 accesses of a token's columns at a time.
constexpr long long unpermute_blocks(long long tokens, int columns, int vector) {
  const long long pieces = (columns + 32 * vector - 1) / (32 * vector);
  const int warps = kUnpermuteThreads / 32;
  return (tokens * pieces + warps - 1) / warps;
}

}  // namespace kiln
