// A producing group gives registers, two math groups take them; each then keeps many values alive.
//
// Constants: kGiven, kTaken.
#include "/kiln/sm90/warpgroup.cuh"

using namespace kiln;

extern "C" __global__ void __launch_bounds__(384, 1) kernel(const u32* in, u32* out, u32* elected) {
  constexpr int kLive = 160;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == 2) {
    give_registers<kGiven>();
    out[threadIdx.x] = in[threadIdx.x] + 1;
  } else {
    take_registers<kTaken>();
    u32 values[kLive];
#pragma unroll
    for (int i = 0; i < kLive; ++i) values[i] = in[threadIdx.x + i];
    __syncwarp();
    u32 sum = 0;
#pragma unroll
    for (int i = 0; i < kLive; ++i) sum = sum * 31 + opaque(values[i]);
    out[threadIdx.x] = sum;
  }
  const bool chosen = elect_lane();
  atomicAdd(elected + threadIdx.x / 32, chosen ? 1 : 256);
}
