// One head of one token, which a group of lanes shares: where it lies, and what a lane holds of it.
// A lane's share is in units of two vectors, so that a rotation's two elements are in one thread.
#pragma once
#include "/kiln/append_kv/params.h"
#include "/kiln/append_kv/tokens.cuh"
#include "/kiln/base/lanes.cuh"
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
  // Whether anything is computed between loads and stores.
  static constexpr bool kQuantized = is_quantized<typename Config::Cache>;
  static constexpr bool kFused = Config::kNorm || kRotary > 0;

  static_assert(Config::kDim % (2 * kVector) == 0 && Config::kDimV % (2 * kVector) == 0,
                "append_kv: head dims must be multiples of 2 * kVector");
  static_assert(kRotary % 2 == 0 && kRotary <= Config::kDim &&
                    (Config::kInterleaved ? kPairs || kRotary % kVector == 0
                                          : kHalf % kVector == 0),
                "append_kv: kRotary must be up to kDim, and its vectors must not meet an edge");
  static_assert(Config::kInterleaved || (Config::kDim - kRotary) % (2 * kVector) == 0,
                "append_kv: what is not rotated must be a multiple of 2 * kVector");
  static_assert(kQuantized || is_same<typename Config::Cache, typename Config::Input>,
                "append_kv: a cache has Input's dtype, or an 8-bit one");
};

template <class Config>
class HeadRow {
 public:
  using Shape = AppendShape<Config>;
  using Tokens = typename TokensOf<Config::kSequences>::Type;
  using TokenParams = typename Tokens::Params;
  using Input = typename Config::Input;
  using Cache = typename Config::Cache;
  static constexpr int kVector = Config::kVector, kHeld = Shape::kHeld;

  // Finds the row and starts its loads.
  __device__ __forceinline__ void load(const TokenParams& given, u32 row) {
    const AppendParams& params = Tokens::call(given);
    const u32 heads = params.heads, heads_kv = params.heads_kv;
    const u32 all = heads + 2 * heads_kv;
    token_ = row / all;
    head_ = row % all;
    of_ = HeadOf::query;
    if (head_ >= heads) head_ -= heads, of_ = HeadOf::key;
    if (of_ == HeadOf::key && head_ >= heads_kv) head_ -= heads_kv, of_ = HeadOf::value;
    exists_ = Tokens::exists(given, token_, of_);
    const Input* const source = !is_query() ? of_ == HeadOf::value
                                                  ? at(given, params.value, params.value_at)
                                                  : at(given, params.key, params.key_at)
                                            : at(given, params.query, params.query_at);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const u32 unit = unit_at(i);
      parts_[i][0].load_once_from(source + first_column(unit), exists_ && has(unit));
      parts_[i][1].load_once_from(source + second_column(unit), exists_ && has(unit));
    }
    slot_ = -1;
    if (exists_ && !is_query()) slot_ = Tokens::slot(given, token_);
  }

  // All lanes of a warp call it together.
  __device__ __forceinline__ void finish(const TokenParams& given) const {
    const AppendParams& params = Tokens::call(given);
    float values[kHeld][2][kVector];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kVector; ++j) {
        values[i][j / kVector][j % kVector] = parts_[i][j / kVector][j % kVector];
      }
    }
    if constexpr (Config::kNorm) norm(values, params);
    if constexpr (Config::kRotary > 0) {
      if (exists_ && of_ != HeadOf::value) rotate(values, params, position(given));
    }
    store(values, given);
  }

 private:
  using Values = float[kHeld][2][kVector];

  __device__ __forceinline__ bool is_query() const {
    return Config::kQuery && of_ == HeadOf::query;
  }
  __device__ __forceinline__ const Input* at(const TokenParams& given, const void* tensor,
                                             const TokenStrides& strides) const {
    return static_cast<const Input*>(tensor) + Tokens::offset(given, token_, strides) +
           head_ * strides.head;
  }
  __device__ __forceinline__ static u32 unit_at(int i) {
    return threadIdx.x % Shape::kLanes + i * Shape::kLanes;
  }
  __device__ __forceinline__ bool has(u32 unit) const {
    return unit < static_cast<u32>(of_ == HeadOf::value ? Shape::kUnitsV : Shape::kUnits);
  }

  // Where the two vectors of a unit are. Of neighbours that rotate together a unit of single
  // elements is one pair; of halves, the unit has one vector in each. What does not rotate is
  // halved too.
  __device__ __forceinline__ u32 first_column(u32 unit) const {
    if (of_ == HeadOf::value || Shape::kRotary == 0) return unit * kVector;
    if constexpr (Shape::kPairs) return 2 * unit;
    if constexpr (Config::kInterleaved) return unit * kVector;
    return unit * kVector + (in_halves(unit) ? 0 : Shape::kHalf);
  }
  __device__ __forceinline__ u32 second_column(u32 unit) const {
    const u32 first = first_column(unit);
    if (of_ == HeadOf::value) return first + Config::kDimV / 2;
    if constexpr (Shape::kRotary == 0) return first + Config::kDim / 2;
    if constexpr (Shape::kPairs) return first + 1;
    if constexpr (Config::kInterleaved) return first + Config::kDim / 2;
    return first + (in_halves(unit) ? Shape::kHalf : (Config::kDim - Shape::kRotary) / 2);
  }
  __device__ __forceinline__ static bool in_halves(u32 unit) {
    return unit * kVector < Shape::kHalf;
  }

  __device__ __forceinline__ void norm(Values& values, const AppendParams& params) const {
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
    const void* const weight = is_query()           ? params.q_weight
                               : of_ == HeadOf::key ? params.k_weight
                                                    : nullptr;
    if (weight == nullptr) return;
    const float scale = rsqrtf(squares * (1.0f / Config::kDim) + params.eps);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const u32 unit = unit_at(i);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const u32 column = part == 0 ? first_column(unit) : second_column(unit);
        Pack<typename Config::Weight, kVector> weights;
        weights.load_from(static_cast<const typename Config::Weight*>(weight) + column, has(unit));
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[i][part][j] *= scale * weights[j];
      }
    }
  }

  __device__ __forceinline__ i64 position(const TokenParams& given) const {
    const i64 last = static_cast<i64>(Tokens::call(given).max_positions) - 1;
    return min(max(Tokens::position(given, token_, of_), 0ll), last);
  }

  // The cosines and sines of kCount angles from `angle` on.
  template <int kCount>
  struct Angles {
    Pack<typename Config::Table, kCount> cos, sin;

    __device__ __forceinline__ Angles(const AppendParams& params, i64 position, u32 angle) {
      using Table = typename Config::Table;
      cos.load_from(static_cast<const Table*>(params.cos) + position * params.cos_stride + angle,
                    /*exists=*/true);
      sin.load_from(static_cast<const Table*>(params.sin) + position * params.sin_stride + angle,
                    /*exists=*/true);
    }
    __device__ __forceinline__ void turn(int i, float& a, float& b) const {
      const float turned = a * cos[i] - b * sin[i];
      b = b * cos[i] + a * sin[i];
      a = turned;
    }
  };

  __device__ __forceinline__ void rotate(Values& values, const AppendParams& params,
                                         i64 row) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const u32 unit = unit_at(i);
      if constexpr (Config::kInterleaved && kVector > 1) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const u32 column = part == 0 ? first_column(unit) : second_column(unit);
          if (!has(unit) || column >= Shape::kRotary) continue;
          const Angles<kVector / 2> angles(params, row, column / 2);
#pragma unroll
          for (int j = 0; j < kVector / 2; ++j) {
            angles.turn(j, values[i][part][2 * j], values[i][part][2 * j + 1]);
          }
        }
      } else {
        if (unit * kVector >= Shape::kHalf) continue;
        const Angles<kVector> angles(params, row, unit * kVector);
#pragma unroll
        for (int j = 0; j < kVector; ++j) angles.turn(j, values[i][0][j], values[i][1][j]);
      }
    }
  }

  __device__ __forceinline__ void store(const Values& values, const TokenParams& given) const {
    const AppendParams& params = Tokens::call(given);
    if (is_query()) {
      if (!exists_) return;
      Input* const out = static_cast<Input*>(params.query_out) +
                         Tokens::offset(given, token_, params.query_out_at) +
                         head_ * params.query_out_at.head;
      return store_input(out, values, Shape::kFused);
    }
    if (slot_ < 0 || slot_ >= params.cache_slots) return;
    const bool is_value = of_ == HeadOf::value;
    const CacheStrides& strides = is_value ? params.v_cache_at : params.k_cache_at;
    const u32 page = static_cast<u32>(slot_) / params.page_size;
    const u32 place = static_cast<u32>(slot_) % params.page_size;
    Cache* const out = static_cast<Cache*>(is_value ? params.v_cache : params.k_cache) +
                       page * strides.page + place * strides.token + head_ * strides.head;
    if constexpr (Shape::kQuantized) {
      const float* const scale = is_value ? params.v_scale : params.k_scale;
      const i64 stride = is_value ? params.v_scale_stride : params.k_scale_stride;
      const Divisor divisor(scale == nullptr ? 1.0f : scale[head_ * stride]);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const u32 unit = unit_at(i);
        if (!has(unit)) continue;
        store_quantized<Cache, Config::kHardware>(out + first_column(unit), values[i][0], divisor);
        store_quantized<Cache, Config::kHardware>(out + second_column(unit), values[i][1], divisor);
      }
    } else {
      store_input(out, values, Shape::kFused && !is_value);
    }
  }

  // What was not computed with keeps its bits, also those of NaN.
  __device__ __forceinline__ void store_input(Input* out, const Values& values,
                                              bool changed) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const u32 unit = unit_at(i);
      if (!has(unit)) continue;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        Part pack = parts_[i][part];
        if (changed) pack.set(values[i][part]);
        pack.store_to(out + (part == 0 ? first_column(unit) : second_column(unit)));
      }
    }
  }

  using Part = Pack<Input, kVector>;
  u32 token_, head_;
  HeadOf of_;
  bool exists_;
  i64 slot_;
  Part parts_[kHeld][2];
};

}  // namespace kiln
