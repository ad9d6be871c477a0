// A box brought by the copy engine, read by ordinary loads through SwizzledRows<8>::offset().
//
// Constants: kRows, of 128 bytes each.
#include "/kiln/base/layout.cuh"
#include "/kiln/sm90/mbarrier.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/wgmma.cuh"

using namespace kiln;

extern __shared__ __align__(1024) unsigned char memory[];

extern "C" __global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ TensorMap map, u32* out, int x, int y, int z) {
  const u32 base = shared_address(memory), barrier = base + kRows * 128;
  if (threadIdx.x == 0) {
    init_barrier(barrier, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(barrier, kRows * 128);
    load_box(base, map, barrier, x, y, z);
  }
  wait(barrier, 0);
  for (int i = threadIdx.x; i < kRows * 32; i += 128) {
    out[i] = load_word(base + SwizzledRows<8>::offset(i / 32, i % 32 / 4) + i % 4 * 4);
  }
}
