// The run-time arguments of the GEMM kernels and their launch arithmetic, shared by host and
// device. out[b, m, n] = cast(epilogue(acc, bias, residual)), where
// acc = alpha * sum_k a[b, m, k] * b[b, k, n] * scale_a[b, m] * scale_b[b, n]. If outputs are gated
// (gate.cuh), b, bias and scale_b have 2 N columns instead.
#pragma once

namespace kiln {

struct GemmParams {
  const void* a;         // M x K; the contiguous dimension is baked in, `a_ld` is the other stride
  const void* b;         // K x N; the same with `b_ld`
  void* out;             // M x N, rows contiguous
  const void* bias;      // [N] or [batch, 1, N], contiguous; null when absent
  const void* residual;  // M x N, rows contiguous; null when absent
  const float* scale_a;  // one value, [M] or [batch, M], contiguous; null when absent
  const float* scale_b;  // one value, [N] or [batch, N], contiguous; null when absent
  void* workspace;       // gemm_workspace_bytes() bytes of any content; unused if splits is 1
  unsigned long long nonce;                   // of this launch, not 0; see base/ticket.cuh
  long long a_ld, b_ld, out_ld, residual_ld;  // strides in elements
  long long a_batch, b_batch, out_batch, bias_batch, residual_batch;  // 0 broadcasts
  long long scale_a_batch, scale_b_batch;
  int m, n, k, batch;
  float alpha;
  int splits;       // CTAs that share a split tile, each with a part of K
  int whole_tiles;  // number of tiles that are not split; the launch begins with them
  int reserved;
};
static_assert(sizeof(GemmParams) % 8 == 0, "keep the argument block a whole number of words");

// Returns the bytes of dynamic shared memory of one CTA: `stages` A and B tiles.
constexpr int gemm_shared_bytes(int block_m, int block_n, int block_k, int stages,
                                int element_bytes) {
  return stages * (block_m + block_n) * block_k * element_bytes;
}

// Counts the output tiles of all batch entries; `n` and `block_n` both count columns of b.
constexpr long long gemm_tiles(int m, int n, int batch, int block_m, int block_n) {
  return static_cast<long long>(batch) * ((m + block_m - 1) / block_m) *
         ((n + block_n - 1) / block_n);
}

// The workspace of a launch with split tiles holds an 8-byte flag for each part (base/ticket.cuh),
// then the parts in fp32.
constexpr long long gemm_flag_bytes(long long parts) { return (parts * 8 + 15) / 16 * 16; }
constexpr long long gemm_workspace_bytes(long long parts, int block_m, int block_n) {
  return parts == 0 ? 0 : gemm_flag_bytes(parts) + parts * block_m * block_n * 4;
}

// The sm_90a kernels also take tensor maps of the operands. A Map is 128 opaque bytes, aligned to
// 64, as a device encodes them. `rows` and `columns` describe the operands that become rows and
// columns of the product: a and b, or b and a if the kernel computes the transposed output. `out`
// and `residual` are unused if these are written or read by elements.
template <class Map>
struct GemmSm90Params {
  Map rows, columns, out, residual;
  GemmParams gemm;
};

// Returns the bytes of a row of an output slab that is not transposed; see sm90/slab.cuh.
constexpr int gemm_sm90_slab_row_bytes(int block_n, int element_bytes) {
  const int bytes = block_n * element_bytes;
  return bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32;
}

// Returns the bytes of dynamic shared memory of one CTA: stages of 128 bytes of K, two output slabs
// and a bias for each math warpgroup, and barriers. With splits, slabs and bias reuse the memory of
// the stages. See sm90/tile.cuh.
constexpr int gemm_sm90_shared_bytes(int block_m, int block_n, int stages, int groups,
                                     int bias_count, bool splits) {
  return stages * (block_m + block_n) * 128 +
         (splits ? 0 : groups * (2 * 64 * 128 + bias_count * 4)) + stages * 16;
}

}  // namespace kiln
