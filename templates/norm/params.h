// The run-time arguments of the norm kernels and their launch arithmetic, shared by host and
// device. Over the columns of each row of [rows, columns], in fp32, rounded once at the end:
//   s = x + residual                                     (stored in residual_out, where given)
//   rms:   y = s * rsqrt(mean(s^2) + eps) * (weight + weight_offset)
//   layer: y = (s - mean(s)) * rsqrt(var(s) + eps) * (weight + weight_offset) + bias
//   out = activation(y)
//
// Three kernels: norm() does all in one launch, a row to a CTA, to a part of one or to a cluster;
// norm_partial() and norm_apply() in two launches, many CTAs to a row. norm.cuh and split.cuh say
// what their Config holds.
#pragma once

namespace kiln {

// Where rows lie: row r begins (r / inner_rows) * outer + (r % inner_rows) * inner elements from
// the tensor's start. Any strides for tensors that are read; rows that are written do not overlap.
struct NormRows {
  long long outer, inner;
};

// An output may be the same memory as x or residual if it has the same dtype and strides: each
// thread reads its elements of a row before it writes them, and nobody else reads them. Any other
// overlap of an output with an input is a race.
struct NormParams {
  const void* x;
  const void* residual;  // unused unless Config::kResidual
  const void* weight;    // [columns], contiguous; unused unless Config::kWeight
  const void* bias;      // [columns], contiguous; unused unless Config::kBias
  void* out;
  void* residual_out;  // of x's dtype; null when not wanted, with or without a residual
  void* workspace;     // norm_workspace_bytes(), of any content; unused by norm()
  NormRows x_rows, residual_rows, out_rows, residual_out_rows;  // strides in elements
  int rows, inner_rows, columns;  // each from 1 on; inner_rows is `rows` if that is one run of rows
  int splits;                     // norm_splits(); unused by norm()
  float eps;
  float weight_offset;  // unused unless Config::kWeight
};
static_assert(sizeof(NormParams) % 8 == 0, "keep the argument block a whole number of words");

// Columns that a CTA holds, of a row that it has for itself or shares with others.
constexpr int norm_cta_columns(int vector, int vectors, int threads_per_row) {
  return vector * vectors * threads_per_row;
}

// norm(): CTAs that give each row a group of threads of its own, in whole clusters. With
// Config::kStages also any fewer, down to one cluster; the result is the same.
constexpr long long norm_blocks(int rows, int rows_per_block, int cluster) {
  return (static_cast<long long>(rows) + rows_per_block - 1) / rows_per_block * cluster;
}

// Dynamic shared memory of norm(): where `stages` rows of each group wait.
constexpr int norm_shared_bytes(int stages, int vectors, int threads, bool residual) {
  return stages * vectors * threads * 16 * (residual ? 2 : 1);
}

// norm_partial() and norm_apply(): a grid of rows * splits each. The workspace holds 16 bytes for
// each CTA, aligned to 16.
constexpr int norm_splits(int columns, int cta_columns) {
  return (columns + cta_columns - 1) / cta_columns;
}
constexpr long long norm_workspace_bytes(int rows, int splits) {
  return static_cast<long long>(rows) * splits * 16;
}

}  // namespace kiln
