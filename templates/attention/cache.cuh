// Keys and values of another type than the queries': bytes of a quantised cache. They stay bytes up
// to the registers of the products, which compute in f16. Every byte is exact there, and so is a
// query, whose row is multiplied by a power of two that brings its largest element near f16's
// largest number: a bfloat16 has fewer digits, and what tiny elements beside it lose is less than
// 2^-38 of it.
// Scales of keys and of rows go into the exponent, the scale of values into the row's factor.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"
#include "/kiln/base/math.cuh"

namespace kiln {

// The elements of a kernel's keys: Config::CacheElement, or those of its queries.
template <class Config, class = void>
struct KeysOf {
  using Element = typename Config::Element;
  using Query = Element;
  using Product = Element;  // of both factors of the products
  static constexpr bool kQuantized = false;
};
template <class...>
using AlwaysVoid = void;
template <class Config>
struct KeysOf<Config, AlwaysVoid<typename Config::CacheElement>> {
  using Element = typename Config::CacheElement;
  using Query = typename Config::QueryElement;
  using Product = f16;
  static constexpr bool kQuantized = true;
  static_assert(sizeof(Element) == 1, "flash_attention: elements of a quantised cache are bytes");
  static_assert(sizeof(Query) == 2 || is_same<Query, Element>,
                "flash_attention: queries of one byte have the type of the keys");
  // Converts 8-bit floats by an instruction, from sm_89 on.
  static constexpr bool kHardware = Config::kHardware;
  // A converted byte must be multiplied by this.
  static constexpr float kUnit = is_same<Element, f8_e4m3> && !kHardware ? 256.0f : 1.0f;
};

// Converts four bytes into two pairs of f16: of bytes 0, 1 and 2, 3 or, alternating, of 0, 2 and
// 1, 3. Without the instruction, bits of an e4m3 mean 2^-8 of it in f16, and its NaN 480.
template <class Keys, bool kAlternating>
__device__ __forceinline__ void widen(u32 bytes, u32& first, u32& second) {
  using Element = typename Keys::Element;
  if constexpr (is_same<Element, f8_e5m2>) {
    first = __byte_perm(bytes, 0, kAlternating ? 0x2404 : 0x1404);
    second = __byte_perm(bytes, 0, kAlternating ? 0x3414 : 0x3424);
  } else if constexpr (is_same<Element, i8>) {
    // The low byte of an f16 of 1024 to 2047 counts ones: 1024 + (x + 128).
    const u32 counts = bytes ^ 0x80808080u;
    first = __byte_perm(counts, 0x64646464u, kAlternating ? 0x4240 : 0x4140);
    second = __byte_perm(counts, 0x64646464u, kAlternating ? 0x4341 : 0x4342);
    asm("sub.f16x2 %0, %0, %1;" : "+r"(first) : "r"(0x64806480u));
    asm("sub.f16x2 %0, %0, %1;" : "+r"(second) : "r"(0x64806480u));
  } else if constexpr (Keys::kHardware) {
    const u32 ordered = kAlternating ? __byte_perm(bytes, 0, 0x3120) : bytes;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(first), "=r"(second)
        : "r"(ordered));
  } else {
    const u32 high = (bytes & 0x80808080u) | (bytes >> 1 & 0x3f3f3f3fu);
    const u32 low = bytes << 7 & 0x80808080u;
    first = __byte_perm(low, high, kAlternating ? 0x6240 : 0x5140);
    second = __byte_perm(low, high, kAlternating ? 0x7351 : 0x7362);
  }
}

// A factor for each of a lane's rows, where a kernel of 16-bit keys has one for all.
template <int kRows>
struct RowScales {
  float row[kRows];
};
__device__ __forceinline__ float scale_of(float all, int) { return all; }
template <int kRows>
__device__ __forceinline__ float scale_of(const RowScales<kRows>& scales, int r) {
  return scales.row[r];
}

// The factors of scores: `size` and, for each of a lane's rows, the factor of its queries.
template <class Map>
__device__ __forceinline__ RowScales<Map::kRows> row_scales(const float* factors, float size) {
  RowScales<Map::kRows> scales;
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) scales.row[r] = factors[Map::row(r)] * size;
  return scales;
}

// Their factors in the exponent, which takes the logits themselves if a hook has seen them, but for
// a factor that was left out. A 0 is replaced by a tiny scale, because 0 * -inf is NaN.
__device__ __forceinline__ float exponent_scales(float size) {
  return fmaxf(size * kLog2e, 1e-30f);
}
template <int kRows>
__device__ __forceinline__ RowScales<kRows> exponent_scales(RowScales<kRows> sizes) {
#pragma unroll
  for (float& size : sizes.row) size = exponent_scales(size);
  return sizes;
}
template <bool kAreLogits, class Sizes>
__device__ __forceinline__ auto exponent_scales(const Sizes& sizes, float left_out) {
  if constexpr (kAreLogits) {
    return exponent_scales(left_out);
  } else {
    return exponent_scales(sizes);
  }
}

// Multiplies scores by factors that differ by the row. Returns what else they are multiplied by.
template <class Map>
__device__ __forceinline__ float multiply_rows(Fragment<Map>&, float size) {
  return size;
}
template <class Map, int kRows>
__device__ __forceinline__ float multiply_rows(Fragment<Map>& scores,
                                               const RowScales<kRows>& sizes) {
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < Map::kCols; ++c) scores.at(r, c) *= sizes.row[r];
  }
  return 1.0f;
}

// Elements of a pair of bfloat16.
__device__ __forceinline__ float first_of(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float second_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// The larger of `most` and the magnitude of `value`, if that is a finite number.
__device__ __forceinline__ float larger_finite(float most, float value) {
  const float size = fabsf(value);
  return size < KILN_INFINITY ? fmaxf(most, size) : most;
}
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<u32>(127 + exponent) << 23);
}
// 2^this brings the largest element of a row to 2^14 or more, but not to 2^15. Tiny rows are left
// tiny, so that the factors stay numbers: they are as exact all the same.
__device__ __forceinline__ int query_exponent(float largest) {
  return min(127 + 14 - static_cast<int>(__float_as_uint(largest) >> 23), 60);
}

// Neighbouring queries of a row, 16 of them, as one thread converts them.
template <class Keys, int kDim, bool kAligned>
struct QueryGroup {
  using Element = typename Keys::Query;
  static constexpr int kSize = 16;
  float values[kSize];

  // Columns behind the row's last are 0, and so are all if `exists` is false.
  __device__ __forceinline__ void load(const Element* row, int column, bool exists) {
    static_assert(kDim % 8 == 0, "QueryGroup: head dims are multiples of 8");
#pragma unroll
    for (int half = 0; half < kSize; half += 8) {
      const bool has = exists && column + half < kDim;
      if constexpr (sizeof(Element) == 1) {
        load_bytes(half, row + column + half, has);
      } else if constexpr (kAligned) {
        uint4 words{0, 0, 0, 0};
        if (has) words = *reinterpret_cast<const uint4*>(row + column + half);
        set_pair(half, words.x), set_pair(half + 2, words.y);
        set_pair(half + 4, words.z), set_pair(half + 6, words.w);
      } else {
#pragma unroll
        for (int i = half; i < half + 8; ++i) values[i] = has ? to_float(row[column + i]) : 0.0f;
      }
    }
  }
  // The largest finite magnitude.
  __device__ __forceinline__ float largest() const {
    float most = 0.0f;
#pragma unroll
    for (float value : values) most = larger_finite(most, value);
    return most;
  }
  // Words 0, 2, 4 and 6 of the group's eight pairs, then the others: a quad's lane t holds bytes
  // 4t to 4t + 3 of 16 keys' columns, and so must its two registers of queries.
  __device__ __forceinline__ void store(u8* chunk, u8* next, float factor) const {
    u32 words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i / 2 + i % 2 * 4] = pack2<f16>(values[2 * i] * factor, values[2 * i + 1] * factor);
    }
    *reinterpret_cast<uint4*>(chunk) = {words[0], words[1], words[2], words[3]};
    *reinterpret_cast<uint4*>(next) = {words[4], words[5], words[6], words[7]};
  }

 private:
  __device__ __forceinline__ void load_bytes(int begin, const Element* from, bool has) {
    u32 words[2] = {0, 0};
    if (has) {
      if constexpr (kAligned) {
        const uint2 both = *reinterpret_cast<const uint2*>(from);
        words[0] = both.x, words[1] = both.y;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) words[i / 4] |= static_cast<u32>(from[i].bits) << i % 4 * 8;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      u32 pairs[2];
      widen<Keys, false>(words[i / 4], pairs[0], pairs[1]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const f16 value{static_cast<u16>(pairs[k / 2] >> k % 2 * 16)};
        values[begin + i + k] = to_float(value) * Keys::kUnit;
      }
    }
  }
  __device__ __forceinline__ void set_pair(int i, u32 word) {
    values[i] = to_float(Element{static_cast<u16>(word)});
    values[i + 1] = to_float(Element{static_cast<u16>(word >> 16)});
  }
};

// Loads the query tile's rows into its swizzled place as f16 with `sign`, and puts down for each
// row what its scores must be multiplied by. Rows from `count` on become zeros.
template <class Config, class Layout, class Rows>
__device__ __forceinline__ void load_queries(u8* tile, float* factors, int count, float sign,
                                             Rows rows) {
  using Group = QueryGroup<KeysOf<Config>, Config::kHeadDim, Config::kAligned>;
  constexpr int kGroups = ceil_div(Config::kHeadDim, Group::kSize);
  // Lanes that share a row, a power of two.
  constexpr int kLanes = kGroups > 16  ? 32
                         : kGroups > 8 ? 16
                         : kGroups > 4 ? 8
                         : kGroups > 2 ? 4
                                       : kGroups;
  constexpr int kStep = Config::kWarps * 32 / kLanes;
  const int group = threadIdx.x % kLanes;
#pragma unroll 1
  for (int row = threadIdx.x / kLanes; row < ceil_div(Config::kBlockQ, kStep) * kStep;
       row += kStep) {
    Group queries;
    const bool exists = row < count && group < kGroups;
    if (exists) rows.seek(row);
    queries.load(rows.pointer, group * Group::kSize, exists);
    float largest = queries.largest();
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    }
    const int up = query_exponent(largest);
    if (group < kGroups && row < Config::kBlockQ) {
      queries.store(tile + Layout::offset(row, 2 * group),
                    tile + Layout::offset(row, 2 * group + 1), sign * power_of_two(up));
      if (group == 0) factors[row] = power_of_two(-up);
    }
  }
}

}  // namespace kiln
