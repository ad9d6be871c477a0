// The norm and the rotation of a head, in fp32, between its load and its store. A thread loads the
// token's angles and the weights once and keeps them for all heads.
#pragma once
#include "/kiln/append_kv/head_shape.cuh"
#include "/kiln/base/lanes.cuh"

namespace kiln {

template <class Config, HeadOf kOf>
class HeadNorm {
 public:
  using Shape = AppendShape<Config>;
  using Mine = Columns<Config, kOf>;
  using Weight = typename Config::Weight;
  static constexpr int kVector = Config::kVector, kHeld = Shape::kHeld;

  // The weights are null where there is no norm.
  __device__ __forceinline__ void load(const AppendParams& params) {
    const void* const weight = weight_of(params);
    if (weight == nullptr) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const u32 unit = Mine::unit_at(i);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        weights_[i][part].load_from(static_cast<const Weight*>(weight) + Mine::at(unit, part),
                                    Mine::has(unit));
      }
    }
  }

  // All lanes of a warp call it together.
  __device__ __forceinline__ void apply(HeadValues<Config>& values,
                                        const AppendParams& params) const {
    if (weight_of(params) == nullptr) return;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kVector; ++j) {
        const float x = values[i][j / kVector][j % kVector];
        squares = fmaf(x, x, squares);
      }
    }
    squares = sum_lanes<Shape::kLanes>(squares);
    const float scale = rsqrtf(squares * (1.0f / Config::kDim) + params.eps);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kVector; ++j) {
        values[i][j / kVector][j % kVector] *= scale * weights_[i][j / kVector][j % kVector];
      }
    }
  }

 private:
  __device__ __forceinline__ static const void* weight_of(const AppendParams& params) {
    return kOf == HeadOf::query ? params.q_weight : params.k_weight;
  }

  Pack<Weight, kVector> weights_[kHeld][2];
};

template <class Config, HeadOf kOf>
class HeadRotation {
 public:
  using Shape = AppendShape<Config>;
  using Mine = Columns<Config, kOf>;
  using Table = typename Config::Table;
  static constexpr int kVector = Config::kVector, kHeld = Shape::kHeld;
  // A unit's angles: of the pairs of each vector, or those that turn one vector with the other.
  static constexpr int kSets = Shape::kWithin ? 2 : 1;
  static constexpr int kAngles = Shape::kWithin ? kVector / 2 : kVector;

  __device__ __forceinline__ void load(const AppendParams& params, i64 position, bool exists) {
    const Table* const cos = static_cast<const Table*>(params.cos) + position * params.cos_stride;
    const Table* const sin = static_cast<const Table*>(params.sin) + position * params.sin_stride;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const u32 first = first_angle(Mine::unit_at(i), set);
        cos_[i][set].load_from(cos + first, exists && turns(i, set));
        sin_[i][set].load_from(sin + first, exists && turns(i, set));
      }
    }
  }

  __device__ __forceinline__ void apply(HeadValues<Config>& values) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        if (!turns(i, set)) continue;
#pragma unroll
        for (int j = 0; j < kAngles; ++j) {
          float& a = Shape::kWithin ? values[i][set][2 * j] : values[i][0][j];
          float& b = Shape::kWithin ? values[i][set][2 * j + 1] : values[i][1][j];
          turn(cos_[i][set][j], sin_[i][set][j], a, b);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static u32 first_angle(u32 unit, int set) {
    return Shape::kWithin ? Mine::at(unit, set) / 2 : unit * kVector;
  }
  __device__ __forceinline__ static bool turns(int i, int set) {
    const u32 unit = Mine::unit_at(i);
    if constexpr (Shape::kWithin) return Mine::has(unit) && Mine::at(unit, set) < Shape::kRotary;
    return Mine::has(unit) && Mine::in_halves(unit);
  }
  __device__ __forceinline__ static void turn(float cos, float sin, float& a, float& b) {
    const float turned = a * cos - b * sin;
    b = b * cos + a * sin;
    a = turned;
  }

  Pack<Table, kAngles> cos_[kHeld][kSets], sin_[kHeld][kSets];
};

}  // namespace kiln
