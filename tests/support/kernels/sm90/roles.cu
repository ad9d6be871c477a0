// A persistent kernel's barriers other than the ring's: one producing warp and two math groups.
//
//   next tile    the producer draws its number and leaves it in shared memory: named barriers
//   kDrawn
//                and kTaken, of all 288 threads. Math takes it before it begins the tile at hand,
//                so that the producer may run ahead
//   query        one box for both groups: mbarrier of one arrival, waited for with the tile's
//   parity;
//                free again by the named barrier kQueryFree, at which math arrives once ahead
//   value, out   the value's box lies where the last tile's output was stored from: the storing
//   threads
//                arrive at an mbarrier when their boxes have been read, and the producer waits for
//                it with the other parity
//
// Group g has rows 64 g .. of the tile; out = 3 query + value, in place.
//
// Shared memory: | query | value, out | barriers: query, value, out free | next tile |
#include "/kiln/sm90/mbarrier.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/warpgroup.cuh"
#include "/kiln/sm90/wgmma.cuh"

using namespace kiln;

constexpr int kMath = 256, kAll = kMath + 32;
constexpr u32 kGroupBytes = 64 * 128, kTileBytes = 2 * kGroupBytes;
constexpr u32 kDrawn = 1, kTaken = 2, kQueryFree = 3, kGroup = 4;

extern __shared__ __align__(1024) unsigned char memory[];

struct Places {
  u32 query, value, query_full, value_full, out_free, next_tile;

  __device__ Places() {
    query = shared_address(memory);
    value = query + kTileBytes;
    query_full = value + kTileBytes;
    value_full = query_full + 8;
    out_free = value_full + 8;
    next_tile = out_free + 8;
  }
};

__device__ void produce(const Places& at, const TensorMap& query, const TensorMap& value, int tiles,
                        int* counter) {
  const bool leads = elect_lane();
  for (int done = 0;; ++done) {
    if (leads) store_word(at.next_tile, atomicAdd(counter, 1));
    __syncwarp();
    sync_threads<kAll>(kDrawn);
    const int tile = load_word(at.next_tile);
    sync_threads<kAll>(kTaken);
    if (tile >= tiles) return;
    sync_threads<kAll>(kQueryFree);
    if (leads) {
      arrive_expecting(at.query_full, kTileBytes);
      load_box(at.query, query, at.query_full, 0, 0, tile);
      wait(at.out_free, (done + 1) & 1);
      arrive_expecting(at.value_full, kTileBytes);
      load_box(at.value, value, at.value_full, 0, 0, tile);
    }
    __syncwarp();
  }
}

__device__ int take_tile(const Places& at) {
  sync_threads<kAll>(kDrawn);
  const int tile = load_word(at.next_tile);
  arrive_threads<kAll>(kTaken);
  return tile;
}

__device__ void compute(const Places& at, const TensorMap& out, int tiles, int group) {
  const int thread = threadIdx.x % 128;
  const u32 query = at.query + group * kGroupBytes, value = at.value + group * kGroupBytes;
  arrive_threads<kAll>(kQueryFree);
  int tile = take_tile(at);
  for (int done = 0; tile < tiles; ++done) {
    const int next = take_tile(at);
    u32 words[16];
    wait(at.query_full, done & 1);
    for (int i = 0; i < 16; ++i) words[i] = load_word(query + (thread + i * 128) * 4) * 3;
    fence_async_proxy();
    arrive_threads<kAll>(kQueryFree);
    wait(at.value_full, done & 1);
    for (int i = 0; i < 16; ++i) {
      const u32 address = value + (thread + i * 128) * 4;
      store_word(address, words[i] + load_word(address));
    }
    fence_async_proxy();
    sync_threads<128>(kGroup + group);
    if (thread == 0) {
      store_box(out, value, 0, group * 64, tile);
      commit_stores();
      wait_stores_read<0>();
      arrive(at.out_free);
    }
    tile = next;
  }
}

extern "C" __global__ void __launch_bounds__(kAll)
    kernel(const __grid_constant__ TensorMap query, const __grid_constant__ TensorMap value,
           const __grid_constant__ TensorMap out, int tiles, int* counter) {
  const Places at;
  if (threadIdx.x == 0) {
    init_barrier(at.query_full, 1);
    init_barrier(at.value_full, 1);
    init_barrier(at.out_free, 2);
    fence_barrier_init();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 2) {
    produce(at, query, value, tiles, counter);
  } else {
    compute(at, out, tiles, group);
  }
}
