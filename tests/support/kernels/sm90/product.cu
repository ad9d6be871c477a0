// One warpgroup's product of a tile: operands brought by the copy engine, or written by the threads
// themselves, read by wgmma, and stored by the accumulators' documented map.
//
// Shared memory: | kAt bytes | block of K: rows, columns | next block of K | ... | barriers |
//
// Constants: kRowsK, kColumnsK (K major?), kElementBytes, kRowTiles (of 64 rows), kN, kLoadedN (>=
// kN, of which the product takes those from kFirstN on), kSteps (of 32 bytes of K a block),
// kBlocksK, kBuffers (for blocks), kAt, kByThreads; struct Products.
#include "/kiln/base/layout.cuh"
#include "/kiln/sm90/mbarrier.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/wgmma.cuh"

using namespace kiln;

constexpr int kBlockK = kSteps * 32 / kElementBytes;

template <bool kKMajor, int kExtent>
struct Operand {
  static constexpr int kBlocks = ceil_div(kExtent, 64);
  static constexpr u32 kBlockBytes = (kKMajor ? 64 : kBlockK) * 128;
  static constexpr u32 kBytes = kKMajor ? kExtent * 128 : kBlocks * kBlockBytes;

  __device__ static void load(u32 memory, const TensorMap& map, u32 barrier, int mn, int k, int z) {
    if constexpr (kKMajor) {
      load_box(memory, map, barrier, k, mn, z);
    } else {
      for (int i = 0; i < kBlocks; ++i) {
        load_box(memory + i * kBlockBytes, map, barrier, mn + i * 64, k, z);
      }
    }
  }

  // From whole rows of `pitch` chunks of 16 bytes.
  __device__ static void store(u32 memory, const uint4* source, int pitch, int k_block) {
    constexpr int kRows = kKMajor ? kExtent : kBlockK, kChunks = kKMajor ? 8 : kBlocks * 8;
    const uint4* block = source + (kKMajor ? k_block * 8 : k_block * kBlockK * pitch);
    for (int i = threadIdx.x; i < kRows * kChunks; i += 128) {
      const int row = i / kChunks, chunk = i % kChunks;
      store_shared_16(memory + chunk / 8 * kBlockBytes + SwizzledRows<8>::offset(row, chunk % 8),
                      block[row * pitch + chunk]);
    }
  }
};

using Rows = Operand<kRowsK, kRowTiles * 64>;
using Columns = Operand<kColumnsK, kLoadedN>;
constexpr u32 kBlockBytes = Rows::kBytes + Columns::kBytes;

extern __shared__ __align__(1024) unsigned char memory[];

struct Place {
  int row, column, k, z;
};

// By one thread: block `i` of K into its buffer.
__device__ void load_block(const TensorMap& rows, const TensorMap& columns, u32 base, u32 barriers,
                           const Place& at, int i) {
  const u32 block = base + i % kBuffers * kBlockBytes, barrier = barriers + i % kBuffers * 8;
  arrive_expecting(barrier, kBlockBytes);
  Rows::load(block, rows, barrier, at.row, at.k + i * kBlockK, at.z);
  Columns::load(block + Rows::kBytes, columns, barrier, at.column, at.k + i * kBlockK, at.z);
}

__device__ void write(const uint4* rows, int rows_pitch, const uint4* columns, int columns_pitch,
                      u32 base) {
  for (int i = 0; i < kBlocksK; ++i) {
    const u32 block = base + i * kBlockBytes;
    Rows::store(block, rows, rows_pitch, i);
    Columns::store(block + Rows::kBytes, columns, columns_pitch, i);
  }
  fence_async_proxy();
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ TensorMap rows, const __grid_constant__ TensorMap columns,
           float* out, Place at, const uint4* own_rows, int rows_pitch, const uint4* own_columns,
           int columns_pitch) {
  const u32 base = shared_address(memory) + kAt, barriers = base + kBuffers * kBlockBytes;
  const bool leads = threadIdx.x == 0;
  if (leads) {
    for (int i = 0; i < kBuffers; ++i) init_barrier(barriers + i * 8, 1);
    fence_barrier_init();
    prefetch_map(rows);
    prefetch_map(columns);
  }
  __syncthreads();
  if constexpr (kByThreads) {
    write(own_rows, rows_pitch, own_columns, columns_pitch, base);
  } else if (leads) {
    for (int i = 0; i < kBuffers; ++i) load_block(rows, columns, base, barriers, at, i);
  }

  float d[kRowTiles][Products::kRegisters];
#pragma unroll
  for (int i = 0; i < kBlocksK; ++i) {
    if constexpr (!kByThreads) wait(barriers + i % kBuffers * 8, i / kBuffers & 1);
    const u32 block = base + i % kBuffers * kBlockBytes;
    const u64 b = operand_descriptor(block + Rows::kBytes + kFirstN * 128, Columns::kBlockBytes);
    begin_products();
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const u64 a = operand_descriptor(block + m * Rows::kBlockBytes, Rows::kBlockBytes);
      Products::multiply(d[m], a, b, i);
    }
    commit_products();
    wait_products<1>();
    if (i > 0 && i - 1 + kBuffers < kBlocksK) {  // the last block's buffer is free
      __syncthreads();
      if (leads) load_block(rows, columns, base, barriers, at, i - 1 + kBuffers);
    }
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) Products::finish(d[m]);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int i = 0; i < Products::kRegisters; ++i) {
      const int row = m * 64 + warp * 16 + i / 2 % 2 * 8 + lane / 4;
      out[row * kN + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[m][i];
    }
  }
}
