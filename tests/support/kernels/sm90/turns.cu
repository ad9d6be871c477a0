// Two groups that take turns: each adds to a list that only their turns protect.
//
// Constants: kRounds.
#include "/kiln/base/copy.cuh"
#include "/kiln/sm90/warpgroup.cuh"

using namespace kiln;

extern "C" __global__ void __launch_bounds__(256) kernel(int* out) {
  __shared__ int list[2 * kRounds + 1];  // how many, then they
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 255) list[0] = 0;
  __syncthreads();
  if (group == 1) arrive_threads<256>(8);
  for (int i = 0; i < kRounds; ++i) {
    sync_threads<256>(8 + group);
    if (threadIdx.x % 128 == i * 37 % 128) {
      const int count = list[0] + 1;
      list[0] = count;
      list[count] = group * 1000 + i;
    }
    arrive_threads<256>(8 + (group ^ 1));
  }
  __syncthreads();
  for (int i = threadIdx.x; i <= 2 * kRounds; i += 256) out[i] = list[i];
}
