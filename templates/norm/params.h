// The run-time arguments of the norm kernels and their launch arithmetic, shared by host and
// device. The norms compute, over the columns of each row of [rows, columns], in fp32 and rounded
// once at the end:
//   s = x + residual                                     (stored in residual_out, if given)
//   rms:   y = s * rsqrt(mean(s^2) + eps) * (weight + weight_offset)
//   layer: y = (s - mean(s)) * rsqrt(var(s) + eps) * (weight + weight_offset) + bias
//   out = activation(y)
//
// There are three kernels. norm() does everything in one launch, with one row per CTA, per part of
// a CTA or per cluster; norm_partial() and norm_apply() take two launches, with many CTAs per row.
// norm.cuh and split.cuh describe their Config.
#pragma once

namespace kiln {

// Where rows begin: row r at (r / inner_rows) * outer + (r % inner_rows) * inner elements from the
// tensor's start. Tensors that are read may have any strides; rows that are written do not overlap.
struct NormRows {
  long long outer, inner;
};

// An output may be the same memory as x or residual if it has the same dtype and strides: each
// thread reads its elements of a row before it writes them, and no other thread reads them. Any
// other overlap of an output with an input is a race.
struct NormParams {
  const void* x;
  const void* residual;  // unused unless Config::kResidual
  const void* weight;    // [columns], contiguous; unused unless Config::kWeight
  const void* bias;      // [columns], contiguous; unused unless Config::kBias
  void* out;
  void* residual_out;  // has x's dtype; null if not wanted, with or without a residual
  void* workspace;     // norm_workspace_bytes() bytes of any content; unused by norm()
  NormRows x_rows, residual_rows, out_rows, residual_out_rows;  // strides in elements
  int rows, inner_rows, columns;  // each at least 1; inner_rows is `rows` if all rows are one run
  int splits;                     // norm_splits(); unused by norm()
  float eps;
  float weight_offset;  // unused unless Config::kWeight
};
static_assert(sizeof(NormParams) % 8 == 0, "keep the argument block a whole number of words");

// The columns that a CTA holds of a row, which it has to itself or shares with other CTAs.
constexpr int norm_cta_columns(int vector, int vectors, int threads_per_row) {
  return vector * vectors * threads_per_row;
}

// The number of CTAs with which norm() gives each row its own group of threads, in whole clusters.
// With Config::kStages any smaller number, down to one cluster, gives the same result.
constexpr long long norm_blocks(int rows, int rows_per_block, int cluster) {
  return (static_cast<long long>(rows) + rows_per_block - 1) / rows_per_block * cluster;
}

// Dynamic shared memory of norm(), which buffers `stages` rows of each group.
constexpr int norm_shared_bytes(int stages, int vectors, int threads, bool residual) {
  return stages * vectors * threads * 16 * (residual ? 2 : 1);
}

// norm_partial() and norm_apply() each take a grid of rows * splits CTAs. The workspace holds 16
// bytes for each CTA, aligned to 16.
constexpr int norm_splits(int columns, int cta_columns) {
  return (columns + cta_columns - 1) / cta_columns;
}
constexpr long long norm_workspace_bytes(int rows, int splits) {
  return static_cast<long long>(rows) * splits * 16;
}

}  // namespace kiln
