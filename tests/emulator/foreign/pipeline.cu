// Copies that run ahead: cuda::barrier and cp.async through the library's own interface.
// pipeline_unfenced lacks the proxy fence that the copies' unit needs to see the new barriers.
#include <cuda/barrier>
#include <cuda/ptx>

template <bool fenced>
__device__ void run(const int4* in, int4* out, int tiles) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ int4 stage[2][64];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier full[2];
  if (threadIdx.x == 0) {
    init(&full[0], blockDim.x);
    init(&full[1], blockDim.x);
    if (fenced) cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  }
  __syncthreads();
  const auto fetch = [&](int tile) {
    cuda::memcpy_async(&stage[tile % 2][threadIdx.x], &in[tile * 64 + threadIdx.x],
                       cuda::aligned_size_t<16>(sizeof(int4)), full[tile % 2]);
  };
  fetch(0);
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    if (tile + 1 < tiles) fetch(tile + 1);
    full[tile % 2].arrive_and_wait();
    const int4 mine = stage[tile % 2][threadIdx.x], other = stage[tile % 2][63 - threadIdx.x];
    out[tile * 64 + threadIdx.x] =
        make_int4(mine.x + other.w, mine.y - other.z, mine.z ^ other.y, mine.w | other.x);
  }
}

extern "C" __global__ void pipeline(const int4* in, int4* out, int tiles) {
  run<true>(in, out, tiles);
}

extern "C" __global__ void pipeline_unfenced(const int4* in, int4* out, int tiles) {
  run<false>(in, out, tiles);
}
