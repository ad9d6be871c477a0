// Functions that stay functions: calls with values, structs, pointers to locals; one within
// another, under a branch, and recursion.
#include <cassert>

struct Pair {
  float low, high;
  int count;
};

__device__ __noinline__ Pair widen(Pair pair, float x) {
  if (x < pair.low) pair.low = x;
  if (x > pair.high) pair.high = x;
  ++pair.count;
  return pair;
}

__device__ __noinline__ void bump(int* counter, int by) { *counter += by; }

__device__ __noinline__ int small(int i) {
  if (i % 2 == 0) return -1;
  int sum = 0;
  bump(&sum, i % 5);
  bump(&sum, i % 5 * 2);
  return sum;
}

// Deep enough for the compiler to leave it alone.
__device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void calls(const float* in, float* ranges, int* counts, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  Pair pair = {1e30f, -1e30f, 0};
  int counter = 0;
  for (int k = 0; k < width; ++k) {
    const float x = in[i * width + k];
    pair = widen(pair, x);
    if (x > 0.0f) bump(&counter, k);  // lanes part here, and meet again
  }
  ranges[2 * i] = pair.low;
  ranges[2 * i + 1] = pair.high;
  counts[2 * i] = counter * 100 + pair.count;
  counts[2 * i + 1] = small(i);
}

extern "C" __global__ void recursive(int* out) {
  out[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x % 4);
}

extern "C" __global__ void asserts(const int* in) { assert(in[threadIdx.x] > 0); }
