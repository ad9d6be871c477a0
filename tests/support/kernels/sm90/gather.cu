// Rows of a table in any order, as of a paged cache: two warps copy them, 16 bytes a thread, into a
// ring of stages in the copy engine's layout; one thread stores each stage as a box.
//
// Constants: kStages, kRows (of 128 bytes each, in a stage).
#include "/kiln/base/layout.cuh"
#include "/kiln/sm90/ring.cuh"
#include "/kiln/sm90/tensor_copy.cuh"

using namespace kiln;

constexpr int kCopiers = 64;
constexpr u32 kStageBytes = kRows * 128;

extern __shared__ __align__(1024) unsigned char memory[];

__device__ void gather(const Ring<kStages>& ring, const u32* table, const int* rows, int steps) {
  auto position = ring.producer();
  for (int step = 0; step < steps; ++step, position.advance()) {
    wait(ring.empty(position.stage), position.parity);
    const u32 stage = shared_address(memory) + position.stage * kStageBytes;
    for (int i = threadIdx.x; i < kRows * 8; i += kCopiers) {
      const int row = rows[step * kRows + i / 8];
      copy_async_16(stage + SwizzledRows<8>::offset(i / 8, i % 8), table + row * 32 + i % 8 * 4,
                    row < 0 ? 0 : 16);
    }
    arrive_after_copies(ring.full(position.stage));
  }
}

__device__ void store(const Ring<kStages>& ring, const TensorMap& out, int steps) {
  auto position = ring.consumer();
  for (int step = 0; step < steps; ++step, position.advance()) {
    wait(ring.full(position.stage), position.parity);
    fence_async_proxy();
    store_box(out, shared_address(memory) + position.stage * kStageBytes, 0, step * kRows, 0);
    commit_stores();
    wait_stores_read<0>();
    arrive(ring.empty(position.stage));
  }
}

extern "C" __global__ void __launch_bounds__(kCopiers + 32)
    kernel(const __grid_constant__ TensorMap out, const u32* table, const int* rows, int steps) {
  const Ring<kStages> ring{shared_address(memory) + kStages * kStageBytes};
  if (threadIdx.x == 0) {
    for (u32 stage = 0; stage < kStages; ++stage) {
      init_barrier(ring.full(stage), kCopiers);
      init_barrier(ring.empty(stage), 1);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < kCopiers) {
    gather(ring, table, rows, steps);
  } else if (threadIdx.x == kCopiers) {
    store(ring, out, steps);
  }
}
