// Each CTA of a cluster sends its box to the CTAs that its mask names, and nobody else; then each
// arrives at its right neighbour alone, CTA r with r + 1 threads.
//
// Shared memory: | a box of each CTA | barriers: full, neighbour |
//
// Constants: kCluster.
#include "/kiln/sm90/mbarrier.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/warpgroup.cuh"

using namespace kiln;

constexpr u32 kBoxBytes = 8 * 128, kWords = kCluster * kBoxBytes / 4, kUntouched = 0x5a5a5a5a;

extern __shared__ __align__(1024) unsigned char memory[];

extern "C" __global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ TensorMap map, const int* masks, u32* out) {
  const u32 base = shared_address(memory), full = base + kWords * 4, neighbour = full + 8;
  const u32 rank = cluster_rank();
  for (u32 i = threadIdx.x; i < kWords / 4; i += 128) {
    store_shared_16(base + i * 16, {kUntouched, kUntouched, kUntouched, kUntouched});
  }
  fence_async_proxy();
  if (threadIdx.x == 0) {
    init_barrier(full, 1);
    init_barrier(neighbour, (rank + kCluster - 1) % kCluster + 1);
    fence_barrier_init();
  }
  sync_cluster();
  if (threadIdx.x == 0) {
    int senders = 0;
    for (int i = 0; i < kCluster; ++i) senders += masks[i] >> rank & 1;
    arrive_expecting(full, senders * kBoxBytes);
    load_box_multicast(base + rank * kBoxBytes, map, full, 0, int(rank) * 8, 0, u16(masks[rank]));
  }
  wait(full, 0);
  for (u32 i = threadIdx.x; i < kWords; i += 128) out[rank * kWords + i] = load_word(base + i * 4);
  if (threadIdx.x <= rank) arrive_at(neighbour, (rank + 1) % kCluster);
  wait(neighbour, 0);
  sync_cluster();
}
