// What NVRTC has built in and the templates use, said for clang, so that editors understand device
// code without CUDA's headers: cmake/index.cmake has clangd read this file before each template. It
// is never compiled into anything.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

struct uint2 {
  unsigned x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
extern const __device__ uint3 threadIdx, blockIdx, blockDim, gridDim;

template <class T>
__device__ constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
__device__ constexpr T max(T a, T b) {
  return a < b ? b : a;
}
__device__ int abs(int);
__device__ float fabsf(float);
__device__ float fmaf(float, float, float);
__device__ float fmaxf(float, float);
__device__ float fminf(float, float);
__device__ float rsqrtf(float);
__device__ float expf(float);
__device__ int __float2int_rn(float);
__device__ unsigned __float2uint_rn(float);
__device__ unsigned __float_as_uint(float);
__device__ int __float_as_int(float);
__device__ unsigned __byte_perm(unsigned, unsigned, unsigned);
__device__ void __trap();
__device__ float __uint_as_float(unsigned);
__device__ float __int_as_float(int);
__device__ unsigned long long __cvta_generic_to_shared(const void*);
__device__ unsigned long long __cvta_generic_to_global(const void*);
template <class T>
__device__ T __ldg(const T*);
template <class T>
__device__ T __ldcg(const T*);

__device__ void __syncthreads();
__device__ int __syncthreads_and(int);
__device__ int __syncthreads_or(int);
__device__ void __syncwarp(unsigned = 0xffffffff);
__device__ void __threadfence();
__device__ int __all_sync(unsigned, int);
__device__ int __any_sync(unsigned, int);
__device__ unsigned __ballot_sync(unsigned, int);
__device__ unsigned __match_any_sync(unsigned, int);
__device__ unsigned __reduce_add_sync(unsigned, unsigned);
__device__ unsigned __reduce_max_sync(unsigned, unsigned);
__device__ unsigned __reduce_min_sync(unsigned, unsigned);
__device__ int __reduce_max_sync(unsigned, int);
__device__ int __reduce_min_sync(unsigned, int);
__device__ int __clz(int);
__device__ unsigned __umulhi(unsigned, unsigned);
__device__ int __popc(unsigned);
__device__ int __ffs(int);
template <class T>
__device__ T __shfl_sync(unsigned, T, int, int = 32);
template <class T>
__device__ T __shfl_up_sync(unsigned, T, unsigned, int = 32);
template <class T>
__device__ T __shfl_xor_sync(unsigned, T, int, int = 32);
template <class T>
__device__ T atomicCAS(T*, T, T);
__device__ unsigned atomicAdd(unsigned*, unsigned);
