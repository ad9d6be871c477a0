// Keys and values of another type than the queries': bytes of a quantised cache. They stay bytes up
// to the registers of the products, which compute in f16. Every byte is exact there, and so is a
// query, whose row is multiplied by a power of two that brings its largest element near f16's
// largest number: a bfloat16 has fewer digits, and what tiny elements beside it lose is less than
// 2^-38 of it.
// Scales of keys and of rows go into the exponent, the scale of values into the row's factor.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/frag.cuh"
#include "/kiln/base/lanes.cuh"
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

// A logit of the lane's row r, as a power of two, and what it has beside the scaled score.
template <class Scale>
__device__ __forceinline__ float logit_of(const Scale& scale, int r, float score) {
  return score * scale_of(scale, r);
}
template <class Scale>
__device__ __forceinline__ float shift_of(const Scale&, int) {
  return 0.0f;
}

// One factor for all scores, and for each of a lane's rows what is added to the product.
template <int kRows>
struct TiltedScale {
  float factor;
  float shift[kRows];
};
template <int kRows>
__device__ __forceinline__ float scale_of(const TiltedScale<kRows>& scale, int) {
  return scale.factor;
}
template <int kRows>
__device__ __forceinline__ float shift_of(const TiltedScale<kRows>& scale, int r) {
  return scale.shift[r];
}
template <int kRows>
__device__ __forceinline__ float logit_of(const TiltedScale<kRows>& scale, int r, float score) {
  return fmaf(score, scale.factor, scale.shift[r]);
}

// One factor for all scores, and one number that is added to the product.
struct ShiftedScale {
  float factor, shift;
};
__device__ __forceinline__ float scale_of(const ShiftedScale& scale, int) { return scale.factor; }
__device__ __forceinline__ float shift_of(const ShiftedScale& scale, int) { return scale.shift; }
__device__ __forceinline__ float logit_of(const ShiftedScale& scale, int, float score) {
  return fmaf(score, scale.factor, scale.shift);
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
  const float scale = size * kLog2e;
  return scale < 1e-36f ? 1e-36f : scale;  // NaN stays, which fmaxf() would hide
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
  static constexpr int kPerWord = 4 / sizeof(Element);
  u32 words[kSize / kPerWord];  // as they are in memory
  float values[kSize];

  // Reads them. Columns behind the row's last are 0, and so are all if `exists` is false.
  __device__ __forceinline__ void fetch(const Element* row, int column, bool exists) {
    static_assert(kDim % 8 == 0, "QueryGroup: head dims are multiples of 8");
#pragma unroll
    for (int half = 0; half < kSize; half += 8) {
      const bool has = exists && column + half < kDim;
      const Element* const from = row + column + half;
      u32* const to = words + half / kPerWord;
      if constexpr (!kAligned) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const u32 bits = has ? from[i].bits : 0;
          to[i / kPerWord] =
              (i % kPerWord == 0 ? 0 : to[i / kPerWord]) | bits << i % kPerWord * (32 / kPerWord);
        }
      } else if constexpr (sizeof(Element) == 1) {
        uint2 both{0, 0};
        if (has) both = *reinterpret_cast<const uint2*>(from);
        to[0] = both.x, to[1] = both.y;
      } else {
        uint4 all{0, 0, 0, 0};
        if (has) all = *reinterpret_cast<const uint4*>(from);
        to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
      }
    }
  }
  // Makes values of what has been read.
  __device__ __forceinline__ void unpack() {
#pragma unroll
    for (int i = 0; i < kSize / kPerWord; ++i) {
      if constexpr (sizeof(Element) == 1) {
        u32 pairs[2];
        widen<Keys, false>(words[i], pairs[0], pairs[1]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const f16 value{static_cast<u16>(pairs[k / 2] >> k % 2 * 16)};
          values[4 * i + k] = to_float(value) * Keys::kUnit;
        }
      } else {
        values[2 * i] = to_float(Element{static_cast<u16>(words[i])});
        values[2 * i + 1] = to_float(Element{static_cast<u16>(words[i] >> 16)});
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
};

// The query tile's rows: read ahead of the keys, behind whose copies a read would wait, and put
// into their swizzled place while these are under way. Rows from `count` on become zeros.
template <class Config, class Rows>
class CacheQueries {
  using Group = QueryGroup<KeysOf<Config>, Config::kHeadDim, Config::kAligned>;
  static constexpr int kGroups = ceil_div(Config::kHeadDim, Group::kSize);
  // Lanes that share a row, a power of two.
  static constexpr int kLanes = kGroups > 16  ? 32
                                : kGroups > 8 ? 16
                                : kGroups > 4 ? 8
                                : kGroups > 2 ? 4
                                              : kGroups;
  static constexpr int kStep = Config::kWarps * 32 / kLanes;

 public:
  // Reads the first of this thread's rows.
  __device__ __forceinline__ CacheQueries(Rows rows, int count)
      : rows_(rows), count_(count), group_(threadIdx.x % kLanes) {
    fetch(threadIdx.x / kLanes);
  }

  // Puts the rows into `tile` as f16 with `sign`, and puts down for each what its scores must be
  // multiplied by.
  template <class Layout>
  __device__ __forceinline__ void store(u8* tile, float* factors, float sign) {
    int row = threadIdx.x / kLanes;
#pragma unroll 1
    while (true) {
      queries_.unpack();
      const int up = query_exponent(max_lanes<kLanes>(queries_.largest()));
      if (group_ < kGroups && row < Config::kBlockQ) {
        queries_.store(tile + Layout::offset(row, 2 * group_),
                       tile + Layout::offset(row, 2 * group_ + 1), sign * power_of_two(up));
        if (group_ == 0) factors[row] = power_of_two(-up);
      }
      row += kStep;
      if (row >= ceil_div(Config::kBlockQ, kStep) * kStep) break;
      fetch(row);
    }
  }

 private:
  __device__ __forceinline__ void fetch(int row) {
    const bool exists = row < count_ && group_ < kGroups;
    if (exists) rows_.seek(row);
    queries_.fetch(rows_.pointer, group_ * Group::kSize, exists);
  }

  Rows rows_;
  int count_, group_;
  Group queries_;
};

}  // namespace kiln
