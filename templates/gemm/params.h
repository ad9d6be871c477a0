// The run-time arguments of the GEMM kernels and their launch arithmetic, shared by host and
// device. out[b, m, n] = cast(epilogue(acc, bias, residual)), where
// acc = alpha * sum_k a[b, m, k] * b[b, k, n] * scale_a[b, m] * scale_b[b, n]. If outputs are gated
// (gate.cuh), b, bias and scale_b have 2 N columns instead. With scales of blocks, the products of
// each 128 of K are multiplied by their own scales before they are added up. With rows in groups
// (groups.cuh), b counts the groups, and M the rows of all of them or what each has room for.
#pragma once

namespace kiln {

// A number from 1 on that the host knows, to divide numbers from 0 to 2^31 - 1 by (raster.cuh).
struct GemmDivisor {
  int value;
  unsigned multiplier;  // 2^(31 + shift) / value, rounded up
  unsigned shift;       // the least with value <= 2^shift
};
constexpr GemmDivisor gemm_divisor(int value) {
  unsigned shift = 0, rest = static_cast<unsigned>(value - 1);
  for (unsigned step = 16; step != 0; step /= 2) {
    if (rest >> step != 0) rest >>= step, shift += step;
  }
  shift += rest;
  const unsigned long long divisor = static_cast<unsigned long long>(value);
  return {value, static_cast<unsigned>(((1ULL << (31 + shift)) + divisor - 1) / divisor), shift};
}

// The last tile along the rows or the columns of wgmma, of which so many are loaded, as the others
// lie outside the operand: see sm90/tail.cuh.
struct GemmTail {
  int begin;  // the tile's first row; -1: all tiles are loaded whole
  int count;
};

// How the sm_90a kernel numbers its tiles and divides K, so that a CTA finds its first tile without
// a division. Tiles are those of clusters.
struct GemmRaster {
  int last_group;         // of rows of tiles
  GemmDivisor per_batch;  // tiles of a batch entry
  GemmDivisor per_group;  // tiles of a group of rows of tiles
  GemmDivisor last_rows;  // rows of tiles of the last group
  // Each of the CTAs that share a tile multiplies so many K-tiles, and the first of them one more.
  int part_k_tiles, longer_parts;
  GemmTail row_tail, column_tail;
  GemmDivisor tiles;  // of all batch entries
  int parts;          // of K of a tile
};
// The last of the groups of `group` rows of tiles, of which there are `rows`. It has the rows that
// do not fill another one, too: few rows of tiles would read all of B again.
constexpr int gemm_last_group(int rows, int group) { return rows < group ? 0 : rows / group - 1; }
// `rows` and `columns` of tiles, at least 1, of the product that wgmma computes.
constexpr GemmRaster gemm_raster(int rows, int columns, int group) {
  const int last = gemm_last_group(rows, group);
  return {last,
          gemm_divisor(rows * columns),
          gemm_divisor(group * columns),
          gemm_divisor(rows - last * group),
          0,
          0,
          {-1, 0},
          {-1, 0},
          gemm_divisor(1),
          1};
}

struct GemmParams {
  const void* a;         // M x K; the contiguous dimension is baked in, `a_ld` is the other stride
  const void* b;         // K x N; the same with `b_ld`
  void* out;             // M x N, rows contiguous
  const void* bias;      // [N] or [batch, 1, N], contiguous; null when absent
  const void* residual;  // M x N, rows contiguous; null when absent
  const float* scale_a;  // one value, [M] or [batch, M], contiguous; null when absent
  const float* scale_b;  // one value, [N] or [batch, N], contiguous; null when absent
                         // or both are scales of blocks: [M, K / 128], and [K / 128, N] or
                         // [K / 128, N / 128], rounded up, with the strides at the end; they
                         // may be bytes instead of floats (sm90/block_scales.cuh)
  void* workspace;       // gemm_workspace_bytes() bytes of any content; unused if splits is 1
  unsigned long long nonce;                   // of this launch, not 0; see base/ticket.cuh
  long long a_ld, b_ld, out_ld, residual_ld;  // strides in elements
  long long a_batch, b_batch, out_batch, bias_batch, residual_batch;  // 0 broadcasts
  long long scale_a_batch, scale_b_batch;
  int m, n, k, batch;
  float alpha;
  int splits;         // CTAs that share a split tile, each with a part of K
  int whole_tiles;    // number of tiles that are not split; the launch begins with them
  int weights_ahead;  // 1: nothing that still runs writes b, which may be loaded before the wait
                      // for earlier launches; see base/launches.cuh
  // Of scales of blocks: the strides of their rows of A or columns (or blocks of columns) of B, and
  // from 128 of K to the next.
  long long scale_a_row, scale_a_group, scale_b_column, scale_b_group;
  const int* group_rows;  // [batch]: where groups of rows end, or how many rows each has; else null
  GemmRaster raster;      // of the sm_90a kernel alone
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
// columns of the product: a and b, or b and a if the kernel computes the transposed output. Those
// of tails are the same with boxes of the tails' rows. `out` and `residual` are unused if these are
// written or read by elements.
template <class Map>
struct GemmSm90Params {
  Map rows, columns, row_tail, column_tail, out, residual;
  GemmParams gemm;
};

// Returns the bytes of a row of an output slab; see sm90/slab.cuh. Slabs of 8-bit outputs have no
// more columns than those of 16-bit ones, whose results fit in the registers. Those of a tile that
// CTAs of a cluster share are at most half as wide, so that each has some to add up.
constexpr int gemm_sm90_slab_row_bytes(int block_n, int element_bytes, bool shared) {
  const int bytes = block_n * element_bytes, most = (element_bytes == 1 ? 64 : 128) >> shared;
  int row_bytes = most;
  while (bytes % row_bytes != 0 && row_bytes > 32) row_bytes /= 2;
  return row_bytes;
}
constexpr int gemm_sm90_transposed_row_bytes(int element_bytes) {
  return element_bytes == 1 ? 64 : 128;
}
// Returns the rows of a box of a transposed slab, a multiple of 16 up to `most`: of as few slabs as
// hold the tile, the last of which may hold fewer rows; or, if parts of K are added up slab by
// slab, of slabs of equal size, each a quarter of a tile at most if a cluster shares it, likewise.
constexpr int gemm_sm90_transposed_rows(int block_n, int most, bool splits, bool shared) {
  if (!splits) {
    const int slabs = (block_n + most - 1) / most;
    return ((block_n + slabs - 1) / slabs + 15) / 16 * 16;
  }
  int rows = !shared ? block_n : block_n < 64 ? 16 : block_n / 4;
  if (rows > most) rows = most;
  while (block_n % rows != 0) rows -= 16;
  return rows;
}

// Scales of blocks: the columns and the depth of a block.
constexpr int kGemmScaleBlock = 128;
// Returns how many of `block` neighbouring rows or columns of a tile have one scale. Tiles begin at
// multiples of `block`, which need not be one of a scale's columns.
constexpr int gemm_scale_run(int block, bool is_of_blocks) {
  if (!is_of_blocks) return 1;
  int run = kGemmScaleBlock;
  while (block % run != 0) run /= 2;
  return run;
}
// Returns the words of a stage's scales: those of its columns, then of its rows, in whole quads.
constexpr int gemm_scale_words(int columns, int rows) { return (columns + rows + 3) / 4 * 4; }

// Returns the output slabs of a math warpgroup: two take turns, and three groups leave room for
// one.
constexpr int gemm_sm90_slabs(int groups) { return groups > 2 ? 1 : 2; }

// Returns the bytes of dynamic shared memory of one CTA: stages of 128 bytes of K, output slabs
// and a bias for each math warpgroup, barriers, and `scale_words` for each stage. With splits,
// slabs and bias reuse the memory of the stages, and there are barriers for the sums. See
// sm90/tile.cuh.
constexpr int gemm_sm90_shared_bytes(int block_m, int block_n, int stages, int groups,
                                     int bias_count, bool splits, int scale_words = 0) {
  return stages * (block_m + block_n) * 128 +
         (splits ? 32 : groups * (gemm_sm90_slabs(groups) * 64 * 128 + bias_count * 4)) +
         stages * 16 + stages * scale_words * 4;
}

}  // namespace kiln
