// The bias of a tile. It is loaded before the products and is in shared memory, as floats, when
// these are done: reads from global memory would stall a math group at every slab.
#pragma once
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

template <class Config>
class BiasTile {
  using Shape = Sm90Shape<Config>;
  using Bias = typename Config::Bias;
  static constexpr int kCount = Shape::kBiasCount;  // columns of b in a group's tile
  static constexpr int kOwn = ceil_div(kCount, 128);

 public:
  __device__ __forceinline__ BiasTile(u32 memory, int group)
      : memory_(memory + group * kCount * 4) {}

  // Loads the bias from output column `column` on; if the output is gated, that of all gates, then
  // that of all partners.
  __device__ __forceinline__ void fetch(const GemmParams& params, int column, int batch) {
    const Bias* bias = static_cast<const Bias*>(params.bias) + batch * params.bias_batch;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int own = threadIdx.x % 128 + i * 128;
      const int at = column + own % kColumns;  // column of the output
      const bool exists = own < kCount && at < params.n;
      own_[i] = exists ? to_float(bias[source_of(own, at, params.n)]) : 0.0f;
    }
  }
  // Writes the bias to shared memory; a barrier of the group must follow.
  __device__ __forceinline__ void keep() const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int own = threadIdx.x % 128 + i * 128;
      if (own < kCount) store_shared_4(memory_ + own * 4, own_[i]);
    }
  }
  // Returns the bias `offset` columns after the first that was fetched; valid after that barrier.
  __device__ __forceinline__ float operator[](int offset) const {
    return load_shared<float>(memory_ + offset * 4);
  }

 private:
  static constexpr int kColumns = kCount / kGateFactor<Config>;

  __device__ __forceinline__ static int source_of(int own, int column, int n) {
    return own < kColumns ? gate_column<Config::kGate>(column)
                          : up_column<Config::kGate>(column, n);
  }

  u32 memory_;
  float own_[kOwn];
};

}  // namespace kiln
