// Sums, scans and counts: warp shuffles, cooperative groups, atomics, dynamic shared memory.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

extern __shared__ float scratch[];

extern "C" __global__ void block_sums(const float* in, float* out, int count) {
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) scratch[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = threadIdx.x < blockDim.x / 32 ? scratch[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}

extern "C" __global__ void tile_scan(const int* in, int* out) {
  const auto block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int i = block.group_index().x * block.size() + block.thread_rank();
  int sum = in[i];
  for (int step = 1; step < tile.size(); step *= 2) {
    const int left = tile.shfl_up(sum, step);
    if (tile.thread_rank() >= step) sum += left;
  }
  out[i] = sum + 1000 * cg::reduce(tile, in[i], cg::greater<int>()) +
           (tile.any(in[i] == 0) ? 100000 : 0);
}

// Counts bytes by value: shared atomics, then one global atomic a bin; aggregated by warp votes.
extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, int count,
                                     unsigned long long* odd) {
  __shared__ unsigned mine[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    atomicAdd(&mine[in[i]], 1u);
    if (in[i] % 2 == 1) {
      const auto active = cg::coalesced_threads();
      if (active.thread_rank() == 0) atomicAdd(odd, (unsigned long long)active.size());
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    if (mine[i] != 0) atomicAdd(&bins[i], mine[i]);
  }
}

// A maximum of floats by compare-and-swap.
extern "C" __global__ void float_max(const float* in, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int* bits = reinterpret_cast<int*>(out);
  int seen = *bits;
  while (__int_as_float(seen) < in[i]) {
    const int before = atomicCAS(bits, seen, __float_as_int(in[i]));
    if (before == seen) break;
    seen = before;
  }
}

// Blocks wait for each other: every one adds what all have written before it.
extern "C" __global__ void grid_rounds(unsigned* values, unsigned* ticket, int rounds) {
  __shared__ unsigned total;
  for (int round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (threadIdx.x < gridDim.x) {
      atomicAdd(&total, *(volatile unsigned*)&values[(round - 1) * gridDim.x + threadIdx.x]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      values[round * gridDim.x + blockIdx.x] = total + blockIdx.x;
      __threadfence();
      atomicAdd(ticket, 1u);
      while (*(volatile unsigned*)ticket < round * gridDim.x) {
      }
      __threadfence();
    }
  }
}
