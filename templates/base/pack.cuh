// Neighbouring elements of a row that one thread holds, in their memory layout. Their number is any
// power of two, whatever their size, so that tensors of several dtypes are walked in step.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Loads 2, 4, 8 or 16 bytes if they exist, into words that the caller has zeroed. The load does not
// allocate in L1, which is kept for the weights: streamed rows are read only once. It is volatile
// so that all loads of a row come before what follows.
template <int kBytes>
__device__ __forceinline__ void load_once(u32* words, const void* source, bool exists) {
  const u32 guard = exists;
  if constexpr (kBytes == 16) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %5, 0;\n"
        "@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "l"(source), "r"(guard)
        : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %3, 0;\n"
        "@p ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];\n"
        "}"
        : "+r"(words[0]), "+r"(words[1])
        : "l"(source), "r"(guard)
        : "memory");
  } else if constexpr (kBytes == 4) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %2, 0;\n"
        "@p ld.global.L1::no_allocate.b32 %0, [%1];\n"
        "}"
        : "+r"(words[0])
        : "l"(source), "r"(guard)
        : "memory");
  } else {
    static_assert(kBytes == 2, "load_once: 2, 4, 8 or 16 bytes");
    u16 half = 0;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %2, 0;\n"
        "@p ld.global.L1::no_allocate.b16 %0, [%1];\n"
        "}"
        : "+h"(half)
        : "l"(source), "r"(guard)
        : "memory");
    words[0] = half;
  }
}

// The same for data that other CTAs read too.
template <int kBytes>
__device__ __forceinline__ void load_cached(u32* words, const void* source, bool exists) {
  if (!exists) return;
  if constexpr (kBytes == 16) {
    const uint4 quad = *static_cast<const uint4*>(source);
    words[0] = quad.x, words[1] = quad.y, words[2] = quad.z, words[3] = quad.w;
  } else if constexpr (kBytes == 8) {
    const uint2 pair = *static_cast<const uint2*>(source);
    words[0] = pair.x, words[1] = pair.y;
  } else if constexpr (kBytes == 4) {
    words[0] = *static_cast<const u32*>(source);
  } else {
    words[0] = *static_cast<const u16*>(source);
  }
}

template <int kBytes>
__device__ __forceinline__ void store_words(void* destination, const u32* words) {
  if constexpr (kBytes == 16) {
    *static_cast<uint4*>(destination) = {words[0], words[1], words[2], words[3]};
  } else if constexpr (kBytes == 8) {
    *static_cast<uint2*>(destination) = {words[0], words[1]};
  } else if constexpr (kBytes == 4) {
    *static_cast<u32*>(destination) = words[0];
  } else {
    *static_cast<u16*>(destination) = static_cast<u16>(words[0]);
  }
}

// Stores 16 bytes to global memory by one instruction. An assignment of a uint4 is mostly that, but
// came out as four stores of a word in merge_states.
__device__ __forceinline__ void store_global_16(void* destination, const u32* words) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(destination), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// The address must be a multiple of the size, or of 16 bytes if the size is larger.
template <class T, int kCount>
struct Pack {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  static constexpr int kPiece = kBytes < 16 ? kBytes : 16;  // bytes per access
  static constexpr int kPieceWords = ceil_div(kPiece, 4);
  u32 words[ceil_div(kBytes, 4)];

  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[i]);
    } else {
      return to_float(T{static_cast<u16>(words[i / 2] >> i % 2 * 16)});
    }
  }
  __device__ __forceinline__ void set(const float (&values)[kCount]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) words[i] = __float_as_uint(values[i]);
    } else if constexpr (kCount == 1) {
      words[0] = from_float<T>(values[0]).bits;
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) words[i / 2] = pack2<T>(values[i], values[i + 1]);
    }
  }

  // Either the whole pack exists, or none of it does and it reads as zeros.
  __device__ __forceinline__ void load_once_from(const T* source, bool exists) {
    clear();
#pragma unroll
    for (int i = 0; i < kBytes / kPiece; ++i) {
      load_once<kPiece>(words + i * kPieceWords, piece(source, i), exists);
    }
  }
  __device__ __forceinline__ void load_from(const T* source, bool exists) {
    clear();
#pragma unroll
    for (int i = 0; i < kBytes / kPiece; ++i) {
      load_cached<kPiece>(words + i * kPieceWords, piece(source, i), exists);
    }
  }
  __device__ __forceinline__ void store_to(T* destination) const {
#pragma unroll
    for (int i = 0; i < kBytes / kPiece; ++i) {
      store_words<kPiece>(reinterpret_cast<u8*>(destination) + i * kPiece, words + i * kPieceWords);
    }
  }

  // To global memory, by one instruction for each 16 bytes.
  __device__ __forceinline__ void store_whole_to(T* destination) const {
    if constexpr (kPiece == 16) {
#pragma unroll
      for (int i = 0; i < kBytes / kPiece; ++i) {
        store_global_16(reinterpret_cast<u8*>(destination) + i * kPiece, words + i * kPieceWords);
      }
    } else {
      store_to(destination);
    }
  }

 private:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (u32& word : words) word = 0;
  }
  __device__ __forceinline__ static const u8* piece(const T* source, int i) {
    return reinterpret_cast<const u8*>(source) + i * kPiece;
  }
};

}  // namespace kiln
