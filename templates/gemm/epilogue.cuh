// Turns accumulators into output: bias, activation, residual, conversion and guarded stores.
#pragma once
#include "/kiln/base/activation.cuh"
#include "/kiln/base/pack.cuh"
#include "/kiln/base/quantize.cuh"
#include "/kiln/gemm/bound_epilogue.cuh"
#include "/kiln/gemm/gate.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/scales.cuh"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

// Every epilogue has this interface, but for those of bound_epilogue.cuh. `acc` is alpha times the
// sum times the scales; an absent bias or residual is passed as 0.
template <Activation kActivation, bool kHasBias, bool kHasResidual>
struct StandardEpilogue {
  static constexpr bool kBias = kHasBias, kResidual = kHasResidual;

  __device__ __forceinline__ float operator()(float acc, float bias, float residual, int /*row*/,
                                              int /*col*/, int /*batch*/) const {
    return activate<kActivation>(acc + bias) + residual;
  }
};

// Used if Config::kGate is set; `gate` and its partner `up` already have their scales and bias.
template <Activation kActivation, bool kHasBias, bool kHasResidual>
struct GatedEpilogue {
  static constexpr bool kBias = kHasBias, kResidual = kHasResidual;

  __device__ __forceinline__ float operator()(float gate, float up, float residual) const {
    return activate<kActivation>(gate) * up + residual;
  }
};

struct Pair {
  float first, second;
};

// If kAligned, all elements exist and the address is a multiple of 16 bytes or of the vector's
// size. Otherwise only the first `count` exist; `count` may be negative or exceed kCount.
template <bool kAligned, class T, int kCount>
__device__ __forceinline__ void load_vector(Pack<T, kCount>& vector, const T* source, int count) {
  if constexpr (kAligned) {
    vector.load_from(source, true);
  } else {
    float values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = i < count ? to_float(source[i]) : 0.0f;
    vector.set(values);
  }
}

template <bool kAligned, class T, int kCount>
__device__ __forceinline__ void store_vector(T* destination, const float (&values)[kCount],
                                             int count) {
  if constexpr (is_quantized<T>) {
    if constexpr (kAligned) {
      store_quantized<T, kHasByteFloats, kCount>(destination, values, Undivided{});
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const u32 element = quantize2<T, kHasByteFloats>(values[i], 0.0f);
        if (i < count) *reinterpret_cast<u8*>(destination + i) = static_cast<u8>(element);
      }
    }
  } else if constexpr (kAligned) {
    Pack<T, kCount> vector;
    vector.set(values);
    vector.store_to(destination);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) destination[i] = from_float<T>(values[i]);
    }
  }
}

// Returns two neighbouring elements of row lane / 4 + 8 * half of a 16 x 8 accumulator.
__device__ __forceinline__ Pair accumulator_pair(const float (&acc)[4], int half) {
  return {acc[half * 2], acc[half * 2 + 1]};
}
__device__ __forceinline__ Pair accumulator_pair(const u32 (&acc)[2], int half) {
  return {to_float(f16{static_cast<u16>(acc[half])}),
          to_float(f16{static_cast<u16>(acc[half] >> 16)})};
}

// Each warp reorders its accumulators from mma.sync's layout to rows, 16 at a time, in its own part
// of shared memory. Global accesses then cover whole lines, and the epilogue is a loop, which
// compiles several times faster than one copy of the code for each register.
template <int kColumns>
struct EpilogueRows {
  static constexpr int kStride = kColumns + 8;  // in floats; lanes 4g + t hit 32 different banks
  static constexpr int kBytes = 16 * kStride * 4;

  float* rows;

  template <class Accumulator>
  __device__ __forceinline__ void write(const Accumulator (&accumulators)[kColumns / 8],
                                        int lane) const {
#pragma unroll
    for (int i = 0; i < kColumns / 8 * 2; ++i) {
      const Pair pair = accumulator_pair(accumulators[i / 2], i % 2);
      const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(rows + row * kStride + column) = {pair.first, pair.second};
    }
  }
  template <int kCount>
  __device__ __forceinline__ void read(float (&values)[kCount], int row, int column) const {
    const float* source = rows + row * kStride + column;
    if constexpr (kCount % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        const float4 quad = *reinterpret_cast<const float4*>(source + i);
        values[i] = quad.x, values[i + 1] = quad.y, values[i + 2] = quad.z, values[i + 3] = quad.w;
      }
    } else {
      const float2 pair = *reinterpret_cast<const float2*>(source);
      values[0] = pair.x, values[1] = pair.y;
    }
  }
};

// Holds the biases or scales of b's columns that belong to kCount neighbouring output columns.
template <class T, int kCount, Gate kGate>
struct ColumnVector {
  Pack<T, kCount> parts[kGate == Gate::none ? 1 : 2];

  // `source` points to the value of the first of `n` output columns.
  template <bool kAligned>
  __device__ __forceinline__ void load(const T* source, int column, int n) {
    const int left = n - column;
    if constexpr (kGate == Gate::interleaved) {
      load_vector<kAligned>(parts[0], source + column * 2, left * 2);
      load_vector<kAligned>(parts[1], source + column * 2 + kCount, left * 2 - kCount);
    } else {
      load_vector<kAligned>(parts[0], source + column, left);
      if constexpr (kGate == Gate::halves)
        load_vector<kAligned>(parts[1], source + n + column, left);
    }
  }
  __device__ __forceinline__ float operator[](int i) const {
    return kGate == Gate::interleaved ? alternating(i * 2) : parts[0][i];
  }
  __device__ __forceinline__ float up(int i) const {
    return kGate == Gate::interleaved ? alternating(i * 2 + 1) : parts[1][i];
  }

 private:
  __device__ __forceinline__ float alternating(int i) const {
    return parts[i / kCount][i % kCount];
  }
};

// Stores one lane's share of a warp's tile: the same columns of every kLaneRows-th row. A slab is
// 16 rows, of which a lane visits kPasses. kColumns counts the warp's columns of the output.
template <class Config, class Epilogue, int kColumns>
class OutputLane {
  using Output = typename Config::Output;
  using Bias = typename Config::Bias;
  using Residual = typename Config::Residual;
  static constexpr bool kAligned = Config::kAlignedStores;
  static constexpr bool kColumnScales = Config::kScaleB == Scale::vector;
  // Of 8-bit outputs 8 bytes: 16 columns of biases and residuals would leave too few registers.
  static constexpr int kVector = !kAligned              ? 2
                                 : is_quantized<Output> ? 8
                                                        : 16 / static_cast<int>(sizeof(Output));
  static constexpr int kVectors = kColumns / kVector;  // per row
  static constexpr int kLaneColumns = kVectors & -kVectors & 31 ? kVectors & -kVectors : 32;
  static constexpr int kLaneRows = 32 / kLaneColumns;
  static constexpr int kSteps = kVectors / kLaneColumns;  // vectors of this lane per row
  static constexpr int kPasses = ceil_div(16, kLaneRows);
  static constexpr Gate kGate = Config::kGate;
  // The sums alternate between kRun gates and the kRun partners of these; see TileLoader.
  static constexpr int kRun = kGate == Gate::halves && Config::kMajorB == Major::mn
                                  ? 16 / static_cast<int>(sizeof(typename Config::Input))
                                  : 1;

 public:
  using Sums = EpilogueRows<kColumns * kGateFactor<Config>>;
  // The residuals of a slab. A lane loads them long before it uses them to hide memory latency; but
  // where it stores single elements, as it uses them: it then has many passes of few columns, which
  // take a second to compile where they are unrolled.
  static constexpr bool kLoadsAhead = Epilogue::kResidual && kAligned;
  static constexpr bool kLoadsLate = Epilogue::kResidual && !kAligned;
  using Residuals = Pack<Residual, kVector>[kPasses][kSteps];
  static constexpr int kResidualWords = sizeof(Residuals) / 4;

  // The warp's tile begins at `row` and `column` of the output; rows from `row_end` on are not its.
  __device__ __forceinline__ OutputLane(const GemmParams& params, int batch, int row, int row_end,
                                        int column, int lane)
      : params_(params),
        batch_(batch),
        lane_row_(lane / kLaneColumns),
        lane_column_(lane % kLaneColumns * kVector),
        row_(row + lane_row_),
        row_end_(row_end),
        column_(column + lane_column_),
        scale_(params) {
    if constexpr (kColumnScales) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (kAligned && columns_left(step) <= 0) continue;
        column_scales_[step].template load<kAligned>(column_scales(params, batch), column_at(step),
                                                     params.n);
      }
    }
    if constexpr (Epilogue::kBias) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (kAligned && columns_left(step) <= 0) continue;
        bias_[step].template load<kAligned>(
            static_cast<const Bias*>(params.bias) + batch * params.bias_batch, column_at(step),
            params.n);
      }
    }
  }

  __device__ __forceinline__ void load(Residuals& residuals, int slab) const {
    const Residual* source = residuals_at(slab);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (exists(slab, pass, step)) {
          load_vector<kAligned>(residuals[pass][step], source + column_at(step),
                                columns_left(step));
        }
      }
      source += kLaneRows * params_.residual_ld;
    }
  }

  __device__ __forceinline__ void store(const Sums& sums, const Residuals& residuals,
                                        int slab) const {
    Output* destination = static_cast<Output*>(params_.out) + batch_ * params_.out_batch +
                          (row_ + slab * 16) * params_.out_ld;
    const Residual* source = residuals_at(slab);
    // Residuals are in registers, which only an unrolled loop can index. Two unrolled passes of
    // gates and partners would spill: a 64 x 64 warp tile leaves no registers for both.
#pragma unroll(kLoadsAhead ? kPasses : kGate == Gate::none ? 2 : 1)
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = row_ + slab * 16 + pass * kLaneRows;
      const float scale = scale_.value() * row_scale<Config>(params_, row, batch_);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (!exists(slab, pass, step)) continue;
        const int sums_row = lane_row_ + pass * kLaneRows;
        const int sums_column = column_at(step) - column_ + lane_column_;
        Pack<Residual, kVector> own;
        if constexpr (kLoadsAhead) own = residuals[pass][step];
        if constexpr (kLoadsLate)
          load_vector<kAligned>(own, source + column_at(step), columns_left(step));
        float values[kVector], ups[kVector] = {};
        if constexpr (kGate == Gate::none) {
          sums.read(values, sums_row, sums_column);
        } else {
          read_gated(values, ups, sums, sums_row, sums_column);
        }
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          const float residual = Epilogue::kResidual ? own[i] : 0.0f;
          values[i] = finish(values[i], ups[i], scale, residual, row, step, i);
        }
        store_vector<kAligned>(destination + column_at(step), values, columns_left(step));
      }
      destination += kLaneRows * params_.out_ld;
      source += kLaneRows * params_.residual_ld;
    }
  }

 private:
  __device__ __forceinline__ const Residual* residuals_at(int slab) const {
    return static_cast<const Residual*>(params_.residual) + batch_ * params_.residual_batch +
           (row_ + slab * 16) * params_.residual_ld;
  }

  // Computes the output in column `i` of the vector at `step`.
  __device__ __forceinline__ float finish(float sum, float up_sum, float scale, float residual,
                                          int row, int step, int i) const {
    const float acc = scale * (kColumnScales ? column_scales_[step][i] : 1.0f) * sum;
    const float bias = Epilogue::kBias ? bias_[step][i] : 0.0f;
    if constexpr (kGate == Gate::none) {
      return apply_epilogue<Epilogue>(params_, acc, bias, residual, row, column_at(step) + i,
                                      batch_);
    } else {
      const Epilogue epilogue;
      const float up = scale * (kColumnScales ? column_scales_[step].up(i) : 1.0f) * up_sum;
      return epilogue(acc + bias, up + (Epilogue::kBias ? bias_[step].up(i) : 0.0f), residual);
    }
  }

  __device__ __forceinline__ static void read_gated(float (&gates)[kVector], float (&ups)[kVector],
                                                    const Sums& sums, int row, int column) {
    if constexpr (kRun >= kVector) {
      const int first = column / kRun * 2 * kRun + column % kRun;
      sums.read(gates, row, first);
      sums.read(ups, row, first + kRun);
    } else {
      float both[kVector * 2];
      sums.read(both, row, column * 2);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        gates[i] = both[i / kRun * 2 * kRun + i % kRun];
        ups[i] = both[i / kRun * 2 * kRun + kRun + i % kRun];
      }
    }
  }

  __device__ __forceinline__ int column_at(int step) const {
    return column_ + step * kLaneColumns * kVector;
  }
  __device__ __forceinline__ int columns_left(int step) const {
    return params_.n - column_at(step);
  }
  __device__ __forceinline__ bool exists(int slab, int pass, int step) const {
    if (kLaneRows > 16 && lane_row_ >= 16) return false;
    return row_ + slab * 16 + pass * kLaneRows < row_end_ && columns_left(step) > 0;
  }

  const GemmParams& params_;
  int batch_, lane_row_, lane_column_, row_, row_end_, column_;
  CommonScale<Config> scale_;
  ColumnVector<Bias, kVector, kGate> bias_[kSteps];
  ColumnVector<float, kVector, kGate> column_scales_[kSteps];
};

// Writes a warp's tile, which starts at `row` and `column` of the output. It reuses the shared
// memory of the stages, so every warp must be done with them.
template <class Config, class Epilogue, class Accumulator, int kTilesM, int kTilesN>
__device__ __forceinline__ void store_tile(const GemmParams& params,
                                           Accumulator (&accumulators)[kTilesM][kTilesN], int batch,
                                           int row, int row_end, int column, int warp, int lane) {
  using Lane = OutputLane<Config, Epilogue, kTilesN * 8 / kGateFactor<Config>>;
  using Rows = typename Lane::Sums;
  // Residuals are loaded ahead for as many slabs as fit in registers that the main loop has freed.
  constexpr int kFit = 64 / Lane::kResidualWords;
  constexpr int kAhead = kFit < 1 ? 1 : kFit < kTilesM ? kFit : kTilesM;
  const Rows rows = {reinterpret_cast<float*>(shared_memory() + warp * Rows::kBytes)};
  const Lane output(params, batch, row, row_end, column, lane);
  typename Lane::Residuals residuals[kAhead];
  if constexpr (Lane::kLoadsAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) output.load(residuals[i], i);
  }
#pragma unroll 1
  for (int i = 0; i < kTilesM; ++i) {
    rows.write(accumulators[0], lane);
    __syncwarp();
    output.store(rows, residuals[0], i);
    if constexpr (kTilesM > 1) __syncwarp();
    // Shift the registers by one tile: indexing them by `i` would need an unrolled loop.
#pragma unroll
    for (int j = 1; j < kTilesM; ++j) copy_accumulators(accumulators[j - 1], accumulators[j]);
    if constexpr (Lane::kLoadsAhead) {
#pragma unroll
      for (int j = 1; j < kAhead; ++j) copy_accumulators(residuals[j - 1], residuals[j]);
      if (kAhead < kTilesM && i + kAhead < kTilesM) output.load(residuals[kAhead - 1], i + kAhead);
    }
  }
}

}  // namespace kiln
