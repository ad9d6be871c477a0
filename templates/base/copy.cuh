// Asynchronous copies from global to shared memory (sm_80 and later) and their group fences.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ u32 load_word(u32 address) {
  u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

__device__ __forceinline__ void store_word(u32 address, u32 word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

template <class T>
__device__ __forceinline__ T load_shared(u32 address) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(load_word(address));
  } else if constexpr (sizeof(T) == 1) {
    u32 byte;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(address) : "memory");
    return static_cast<T>(byte);
  } else {
    T value;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(value.bits) : "r"(address) : "memory");
    return value;
  }
}
__device__ __forceinline__ float4 load_shared_16(u32 address) {
  float4 quad;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w)
               : "r"(address)
               : "memory");
  return quad;
}
// 4, 8 or 16 bytes.
template <int kBytes>
__device__ __forceinline__ void load_shared_words(u32* words, u32 address) {
  if constexpr (kBytes == 16) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
  } else {
    static_assert(kBytes == 4, "load_shared_words: 4, 8 or 16 bytes");
    words[0] = load_word(address);
  }
}
// These two store the low bits of a word.
__device__ __forceinline__ void store_shared_1(u32 address, u32 value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared_2(u32 address, u32 value) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(static_cast<u16>(value)) : "memory");
}
__device__ __forceinline__ void store_shared_4(u32 address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ __forceinline__ void store_shared_8(u32 address, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second)
               : "memory");
}

__device__ __forceinline__ void store_shared_16(u32 address, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

// Copies `valid_bytes` (0..16) from global memory and fills the rest of the 16 bytes with zeros.
// With 0 valid bytes nothing is read, so `source` may be any address. With 1 to 15 the hardware
// fetches all 16 aligned bytes and drops the rest; if the tensor ends within them,
// compute-sanitizer reports a read of 16 bytes.
__device__ __forceinline__ void copy_async_16(u32 destination, const void* source,
                                              int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
               "r"(valid_bytes)
               : "memory");
}
// The same for pieces of 4, 8 or 16 bytes that exist or, with 0 valid bytes, do not.
template <int kBytes>
__device__ __forceinline__ void copy_async(u32 destination, const void* source, int valid_bytes) {
  if constexpr (kBytes == 16) {
    copy_async_16(destination, source, valid_bytes);
  } else {
    static_assert(kBytes == 4 || kBytes == 8, "copy_async: 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(source),
                 "n"(kBytes), "r"(valid_bytes)
                 : "memory");
  }
}
// In these two, kAsync is false where the loader stores by itself and no copy is in flight.
template <bool kAsync>
__device__ __forceinline__ void commit_copies() {
  if constexpr (kAsync) asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's committed groups are still in flight.
template <bool kAsync, int kPending>
__device__ __forceinline__ void wait_copies() {
  if constexpr (kAsync) asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace kiln
