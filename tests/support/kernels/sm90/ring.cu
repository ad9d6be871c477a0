// Tiles of several K blocks through a ring of stages, from one producing warp to math warpgroups.
// A stage is a box of the CTA's own, and of a cluster also a box from each of its CTAs for all of
// them. The output is the sum of the blocks, each times its number, so that their order shows.
//
// Shared memory: | stage 0: own box, the cluster's boxes | stage 1 | ... | barriers |
//
// Constants: kStages, kCluster, kGroups, kPingPong (two groups have every other tile each, else all
// share each tile).
#include "/kiln/sm90/ring.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/warpgroup.cuh"

using namespace kiln;

constexpr int kBoxRows = 8;
constexpr u32 kBoxBytes = kBoxRows * 128;
constexpr int kBoxes = kCluster == 1 ? 1 : 1 + kCluster;
constexpr u32 kStageBytes = kBoxes * kBoxBytes;
constexpr int kWords = kStageBytes / 4;
constexpr int kSharers = kPingPong ? 1 : kGroups;     // groups that share a tile
constexpr int kOwnWords = kWords / (kSharers * 128);  // of a thread

extern __shared__ __align__(1024) unsigned char memory[];

using StageRing = Ring<kStages>;

struct Work {
  const int* k_blocks;  // of each tile
  int tiles;
  int first, step;  // this cluster's tiles
  u32 rank;
};

__device__ void produce(const StageRing& ring, const TensorMap& own, const TensorMap& shared,
                        const Work& work) {
  auto position = ring.producer();
  for (int tile = work.first; tile < work.tiles; tile += work.step) {
    for (int k = 0; k < work.k_blocks[tile]; ++k, position.advance()) {
      wait(ring.empty(position.stage), position.parity);
      const u32 full = ring.full(position.stage);
      const u32 stage = shared_address(memory) + position.stage * kStageBytes;
      arrive_expecting(full, kStageBytes);
      load_box(stage, own, full, 0, k * kBoxRows, tile * kCluster + int(work.rank));
      if constexpr (kCluster > 1) {
        const u32 part = stage + (1 + work.rank) * kBoxBytes;
        load_box_multicast(part, shared, full, 0, (k * kCluster + int(work.rank)) * kBoxRows, tile,
                           (1 << kCluster) - 1);
      }
    }
  }
}

__device__ void release(u32 empty) {
  const u32 lane = threadIdx.x % 32;
  fence_async_proxy();  // ordinary reads, then writes by the copy engine
  __syncwarp();
  if constexpr (kCluster == 1) {
    if (lane == 0) arrive(empty);
  } else {
    if (lane < kCluster) arrive_at(empty, lane);
  }
}

// A wait tells a round of a stage from the one before and after it, no more: who has skipped a tile
// may look at the ring again when the group that has it is through with it.
__device__ void wait_for_turn(int group) { sync_threads<256>(8 + group); }
__device__ void give_turn(int group) { arrive_threads<256>(8 + group); }

__device__ void consume(const StageRing& ring, const Work& work, int group, u32* out) {
  auto position = ring.consumer();
  const int first_word = threadIdx.x % 128 + (kPingPong ? 0 : group * kOwnWords * 128);
  int index = 0;
  if (kPingPong && group == 1) give_turn(0);
  for (int tile = work.first; tile < work.tiles; tile += work.step, ++index) {
    const int k_blocks = work.k_blocks[tile];
    if (kPingPong && index % kGroups != group) {
      position.advance_by(k_blocks);
      continue;
    }
    if constexpr (kPingPong) wait_for_turn(group);
    u32 sums[kOwnWords] = {};
    for (int k = 0; k < k_blocks; ++k, position.advance()) {
      wait(ring.full(position.stage), position.parity);
      const u32 stage = shared_address(memory) + position.stage * kStageBytes;
      for (int i = 0; i < kOwnWords; ++i) {
        sums[i] += load_word(stage + (first_word + i * 128) * 4) * (k + 1);
      }
      release(ring.empty(position.stage));
    }
    if constexpr (kPingPong) give_turn(group ^ 1);
    u32* tile_out = out + (tile * kCluster + work.rank) * kWords;
    for (int i = 0; i < kOwnWords; ++i) tile_out[first_word + i * 128] = sums[i];
  }
}

extern "C" __global__ void __launch_bounds__(kGroups * 128 + 32)
    kernel(const __grid_constant__ TensorMap own, const __grid_constant__ TensorMap shared,
           const int* k_blocks, int tiles, u32* out) {
  const StageRing ring{shared_address(memory) + kStages * kStageBytes};
  const int group = threadIdx.x / 128;
  const Work work{k_blocks, tiles, int(blockIdx.x) / kCluster, int(gridDim.x) / kCluster,
                  kCluster == 1 ? 0 : cluster_rank()};
  if (threadIdx.x == 0) {
    ring.init(kSharers * 4 * kCluster);
    fence_barrier_init();
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    sync_cluster();
  }
  if (group == kGroups) {
    if (elect_lane()) produce(ring, own, shared, work);
    __syncwarp();
  } else {
    consume(ring, work, group, out);
  }
  if constexpr (kCluster > 1) sync_cluster();
}
