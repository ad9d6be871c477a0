// Accumulators to a tensor: through two slabs of shared memory that take turns, 64 rows of 128
// bytes each, to the copy engine. Transposed, a slab's rows are columns of the accumulators.
//
// Constants: kTiles (of 64 rows), kN, kTransposed; Output.
#include "/kiln/base/layout.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/warpgroup.cuh"
#include "/kiln/sm90/wgmma.cuh"

using namespace kiln;

constexpr int kSlabColumns = 128 / int(sizeof(Output)), kTilesN = kSlabColumns / 8;
constexpr u32 kSlabBytes = 64 * 128;

extern __shared__ __align__(1024) unsigned char memory[];

// `values`: of tiles of 8 columns, as wgmma leaves them.
__device__ void fill(u32 slab, const float (&values)[kTilesN][4]) {
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  if constexpr (sizeof(Output) == 4) {
    for (int j = 0; j < kTilesN; ++j) {
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + half * 8 + lane / 4, chunk = j * 2 + lane % 4 / 2;
        store_shared_8(slab + SwizzledRows<8>::offset(row, chunk) + lane % 2 * 8, values[j][half * 2],
                       values[j][half * 2 + 1]);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kTilesN; j += 2) {
      const u32 top = pack2<Output>(values[j][0], values[j][1]);
      const u32 bottom = pack2<Output>(values[j][2], values[j][3]);
      const u32 next_top = pack2<Output>(values[j + 1][0], values[j + 1][1]);
      const u32 next_bottom = pack2<Output>(values[j + 1][2], values[j + 1][3]);
      if constexpr (kTransposed) {
        const int row = j * 8 + lane / 16 * 8 + lane % 8, chunk = warp_row / 8 + lane / 8 % 2;
        store_matrix_x4_transposed(slab + SwizzledRows<8>::offset(row, chunk), top, bottom, next_top,
                                   next_bottom);
      } else {
        const int row = warp_row + lane % 16, chunk = j + lane / 16;
        store_matrix_x4(slab + SwizzledRows<8>::offset(row, chunk), top, bottom, next_top, next_bottom);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ TensorMap out, const float* sums, int row, int column, int z) {
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const bool leads = threadIdx.x == 0;
  int turn = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int first = 0; first < kN; first += kSlabColumns, turn ^= 1) {
      float values[kTilesN][4];
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int own_row = tile * 64 + warp_row + i / 2 * 8 + lane / 4;
          values[j][i] = sums[own_row * kN + first + j * 8 + lane % 4 * 2 + i % 2];
        }
      }
      const u32 slab = shared_address(memory) + turn * kSlabBytes;
      if (leads) wait_stores_read<1>();
      sync_threads<128>(1);
      fill(slab, values);
      fence_async_proxy();
      sync_threads<128>(1);
      if (leads) {
        const int at_row = row + tile * 64, at_column = column + first;
        if constexpr (kTransposed) {
          store_box(out, slab, at_row, at_column, z);
        } else {
          store_box(out, slab, at_column, at_row, z);
        }
        commit_stores();
      }
    }
  }
  if (leads) wait_stores_read<0>();
}
