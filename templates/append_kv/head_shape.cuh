// How a group of lanes shares a head: which elements each has of it. A lane's share is in units of
// two vectors, so that a rotation's two elements are in one thread.
#pragma once
#include "/kiln/append_kv/params.h"
#include "/kiln/append_kv/tokens.cuh"
#include "/kiln/base/pack.cuh"
#include "/kiln/base/quantize.cuh"

namespace kiln {

// Constants derived from a Config, and the conditions it must meet; append_kv.cuh lists its fields.
template <class Config>
struct AppendShape {
  static constexpr int kVector = Config::kVector, kRotary = Config::kRotary;
  static constexpr int kUnits = Config::kDim / (2 * kVector);
  static constexpr int kUnitsV = Config::kDimV / (2 * kVector);
  static constexpr int kLanes =
      append_lanes(Config::kDim > Config::kDimV ? Config::kDim : Config::kDimV, kVector);
  static constexpr int kHeld = ceil_div(kUnits > kUnitsV ? kUnits : kUnitsV, kLanes);
  static constexpr int kHalf = kRotary / 2;
  static constexpr bool kPairs = Config::kInterleaved && kVector == 1;  // a unit is a pair
  static constexpr bool kWithin = Config::kInterleaved && kVector > 1;  // a vector has whole pairs

  static_assert(Config::kDim % (2 * kVector) == 0 && Config::kDimV % (2 * kVector) == 0,
                "append_kv: head dims must be multiples of 2 * kVector");
  static_assert(kRotary % 2 == 0 && kRotary <= Config::kDim &&
                    (Config::kInterleaved ? kPairs || kRotary % kVector == 0
                                          : kHalf % kVector == 0),
                "append_kv: kRotary must be up to kDim, and its vectors must not meet an edge");
  static_assert(Config::kInterleaved || (Config::kDim - kRotary) % (2 * kVector) == 0,
                "append_kv: what is not rotated must be a multiple of 2 * kVector");
  static_assert(is_quantized<typename Config::Cache> ||
                    is_same<typename Config::Cache, typename Config::Input>,
                "append_kv: a cache has Input's dtype, or an 8-bit one");
};

// The elements that this thread has of a head of a kind.
template <class Config, HeadOf kOf>
struct Columns {
  using Shape = AppendShape<Config>;
  static constexpr int kVector = Config::kVector, kHeld = Shape::kHeld;

  __device__ __forceinline__ static u32 unit_at(int i) {
    return threadIdx.x % Shape::kLanes + i * Shape::kLanes;
  }
  __device__ __forceinline__ static bool has(u32 unit) {
    constexpr int kUnits = kOf == HeadOf::value ? Shape::kUnitsV : Shape::kUnits;
    return kUnits == Shape::kLanes * kHeld || unit < static_cast<u32>(kUnits);
  }

  // Where the two vectors of a unit are. Of neighbours that rotate together a unit of single
  // elements is one pair; of halves, the unit has one vector in each. What does not rotate is
  // halved too.
  __device__ __forceinline__ static u32 first(u32 unit) {
    if constexpr (kOf == HeadOf::value || Shape::kRotary == 0) return unit * kVector;
    if constexpr (Shape::kPairs) return 2 * unit;
    if constexpr (Config::kInterleaved) return unit * kVector;
    return unit * kVector + (in_halves(unit) ? 0 : Shape::kHalf);
  }
  __device__ __forceinline__ static u32 second(u32 unit) {
    if constexpr (kOf == HeadOf::value) return first(unit) + Config::kDimV / 2;
    if constexpr (Shape::kRotary == 0) return first(unit) + Config::kDim / 2;
    if constexpr (Shape::kPairs) return first(unit) + 1;
    if constexpr (Config::kInterleaved) return first(unit) + Config::kDim / 2;
    return first(unit) + (in_halves(unit) ? Shape::kHalf : (Config::kDim - Shape::kRotary) / 2);
  }
  __device__ __forceinline__ static u32 at(u32 unit, int part) {
    return part == 0 ? first(unit) : second(unit);
  }
  __device__ __forceinline__ static bool in_halves(u32 unit) {
    return Shape::kRotary == Config::kDim || unit * kVector < Shape::kHalf;
  }
};

// A thread's share of a head: as it lies in memory, and in fp32.
template <class Config>
struct HeadParts {
  using Part = Pack<typename Config::Input, Config::kVector>;
  Part parts[AppendShape<Config>::kHeld][2];
};
template <class Config>
using HeadValues = float[AppendShape<Config>::kHeld][2][Config::kVector];

}  // namespace kiln
