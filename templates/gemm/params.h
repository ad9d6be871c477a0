// The run-time arguments of the GEMM kernels and their launch arithmetic, shared by host and
// device. out[b, m, n] = cast(epilogue(alpha * sum_k a[b, m, k] * b[b, k, n], bias, residual)).
#pragma once

namespace kiln {

struct GemmParams {
  const void* a;         // M x K; the contiguous dimension is baked, `a_ld` is the other's stride
  const void* b;         // K x N; likewise
  void* out;             // M x N, rows contiguous
  const void* bias;      // [N] or [batch, 1, N], contiguous; null when absent
  const void* residual;  // M x N, rows contiguous; null when absent
  void* workspace;       // gemm_workspace_bytes(), of any content; unused when splits is 1
  unsigned long long nonce;  // of this launch: low 8 bits 0, the rest not (base/ticket.cuh)
  long long a_ld, b_ld, out_ld, residual_ld;                          // strides in elements
  long long a_batch, b_batch, out_batch, bias_batch, residual_batch;  // 0 broadcasts
  int m, n, k, batch;
  float alpha;
  int splits;  // CTAs that share one output tile, each with a part of K: 1 to kMaxGemmSplits
};
static_assert(sizeof(GemmParams) % 8 == 0, "keep the argument block a whole number of words");

constexpr int kMaxGemmSplits = 255;  // what a ticket counts

// Dynamic shared memory of one CTA: `stages` A and B tiles.
constexpr int gemm_shared_bytes(int block_m, int block_n, int block_k, int stages,
                                int element_bytes) {
  return stages * (block_m + block_n) * block_k * element_bytes;
}

// The output tiles of all batch entries.
constexpr long long gemm_tiles(int m, int n, int batch, int block_m, int block_n) {
  return static_cast<long long>(batch) * ((m + block_m - 1) / block_m) *
         ((n + block_n - 1) / block_n);
}

// CTAs of a launch, in one grid dimension: all tiles of the first split, of the second, and so on.
constexpr long long gemm_grid(int m, int n, int batch, int block_m, int block_n, int splits) {
  return gemm_tiles(m, n, batch, block_m, block_n) * splits;
}

// A 64-bit ticket for each tile, up to a multiple of 16 bytes.
constexpr long long gemm_ticket_bytes(long long tiles) { return (tiles + 1) / 2 * 16; }

// Tickets, then one tile of floats for each split and tile.
constexpr long long gemm_workspace_bytes(int m, int n, int batch, int block_m, int block_n,
                                         int splits) {
  if (splits <= 1) return 0;
  const long long tiles = gemm_tiles(m, n, batch, block_m, block_n);
  return gemm_ticket_bytes(tiles) + splits * tiles * block_m * block_n * 4;
}

}  // namespace kiln
