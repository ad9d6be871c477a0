// Arithmetic of many types: half and bf16 headers, 64-bit integers, doubles, elementary functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__constant__ float kWeights[8] = {0.5f, -1.0f, 2.0f, 0.25f, -0.125f, 3.0f, 1.0f, -2.0f};
__constant__ unsigned char kPermutation[16] = {3, 1, 4, 15, 9,  2,  6,  5,
                                               0, 8, 7, 10, 14, 11, 13, 12};
__device__ int g_calls = 40;

extern "C" __global__ void halves(const __half2* in, __half2* out, __nv_bfloat16* rounded,
                                  const float* scale, int pairs) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  const __half2 s = __float2half2_rn(*scale);
  const __half2 x = in[i];
  __half2 y = __hfma2(x, s, __half2half2(__low2half(x)));
  y = __hmax2(y, __hneg2(x));
  out[i] = __hadd2(y, h2exp2(__hmin2(x, __float2half2_rn(1.0f))));
  const float2 wide = __half22float2(x);
  rounded[2 * i] = __float2bfloat16_rn(wide.x * 1.01f);
  rounded[2 * i + 1] = __hmul(__float2bfloat16_rz(wide.y), __float2bfloat16(3.0f));
}

extern "C" __global__ void wide_integers(const long long* a, const long long* b, long long* out,
                                         int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const long long x = a[i], y = b[i];
  const unsigned long long ux = x, uy = y;
  long long* o = out + 8 * i;
  o[0] = x * y;
  o[1] = __mul64hi(x, y);
  o[2] = y != 0 ? x / y : -1;
  o[3] = uy != 0 ? (long long)(ux % uy) : -1;
  o[4] = (x << (y & 63)) ^ (x >> (y & 31));
  o[5] = __popcll(ux) * 10000 + __clzll(x) * 100 + __ffsll(x);
  o[6] = (long long)__brevll(ux) + llmin(x, y);
  o[7] = (long long)((double)x * 0.5) + __double2ll_rz(sqrt(fabs((double)y)));
}

extern "C" __global__ void functions(const float* in, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = in[i];
  float* o = out + 8 * i;
  o[0] = sinf(x);
  o[1] = expf(-fabsf(x));
  o[2] = logf(1.0f + fabsf(x));
  o[3] = tanhf(x);
  o[4] = powf(fabsf(x), 1.7f);
  o[5] = x / 3.7f;
  o[6] = rsqrtf(1.0f + x * x) + cbrtf(x);
  o[7] = erff(x) + fmodf(x, 0.7f);
}

// Tables in constant and in local memory, and a switch wide enough for a table of branches.
extern "C" __global__ void tables(const int* in, float* out, int* sorted) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int x = in[i];
  float value;
  switch (x & 15) {
    case 0:
      value = 1.0f;
      break;
    case 1:
      value = x * 2.0f;
      break;
    case 2:
      value = sqrtf(fabsf((float)x));
      break;
    case 3:
      value = kWeights[x >> 4 & 7];
      break;
    case 4:
      value = __popc(x);
      break;
    case 5:
      value = x % 7;
      break;
    case 6:
      value = -x;
      break;
    case 7:
      value = kPermutation[x >> 4 & 15];
      break;
    case 8:
      value = __int2float_rz(x * 3);
      break;
    case 9:
      value = x < 0 ? -1.0f : 1.0f;
      break;
    case 10:
      value = x ^ 0x55;
      break;
    case 11:
      value = fminf(x, 100.0f);
      break;
    default:
      value = 0.5f;
  }
  out[i] = value + kWeights[threadIdx.x & 7];
  int local[16];
  for (int k = 0; k < 16; ++k) local[kPermutation[k]] = (x >> (k & 7)) ^ k * 37;
  for (int k = 1; k < 16; ++k) {  // insertion sort: indices that only run time knows
    const int held = local[k];
    int at = k;
    for (; at > 0 && local[at - 1] > held; --at) local[at] = local[at - 1];
    local[at] = held;
  }
  for (int k = 0; k < 16; ++k) sorted[16 * i + k] = local[k];
  atomicAdd(&g_calls, 1);
  if (i == 0 && g_calls < 40) __trap();
}

// A small machine: lanes of one warp run different programs, and part at every step.
extern "C" __global__ void interpret(const unsigned char* programs, int length, unsigned* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned char* program = programs + i * length;
  unsigned a = i, b = 1;
  for (int at = 0; at < length; ++at) {
    switch (program[at]) {
      case 0:
        a += b;
        break;
      case 1:
        a -= 3 * b;
        break;
      case 2:
        b = a * a + 1;
        break;
      case 3:
        a ^= b << 3;
        break;
      case 4:
        b = __brev(b);
        break;
      case 5:
        a = __umulhi(a, 0x9e3779b9u) + b;
        break;
      case 6:
        if (a & 1) ++at;
        break;
      case 7: {
        const unsigned t = a;
        a = b;
        b = t;
        break;
      }
      case 8:
        a = __byte_perm(a, b, 0x5140);
        break;
      case 9:
        b = __funnelshift_l(a, b, 7);
        break;
      case 10:
        a = a / (b | 1u);
        break;
      case 11:
        b %= a | 3u;
        break;
      case 12:
        out[2 * i] = a;
        break;
      case 13:
        a = __popc(a) + __clz(b);
        break;
      case 14:
        b = ~b;
        break;
      case 15:
        at = length;
        break;
    }
  }
  out[2 * i + 1] = a ^ b;
}
