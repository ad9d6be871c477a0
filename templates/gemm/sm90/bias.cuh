// The bias of a tile. It is asked for before the products and is in shared memory, as floats, when
// these are done: from global memory it would keep a math group waiting for every slab.
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
  __device__ __forceinline__ explicit BiasTile(int group)
      : memory_(Shape::base() + Shape::kBiasAt + group * kCount * 4) {}

  // From column `column` of the output on; where it is gated, of all gates and then of all
  // partners.
  __device__ __forceinline__ void fetch(const GemmParams& params, int column, int batch) {
    const Bias* bias = static_cast<const Bias*>(params.bias) + batch * params.bias_batch;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int own = threadIdx.x % 128 + i * 128;
      const int at = column + own % kColumns;  // of the output
      const bool exists = own < kCount && at < params.n;
      own_[i] = exists ? to_float(bias[source_of(own, at, params.n)]) : 0.0f;
    }
  }
  // Before a barrier of the group.
  __device__ __forceinline__ void keep() const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int own = threadIdx.x % 128 + i * 128;
      if (own < kCount) store_shared_4(memory_ + own * 4, own_[i]);
    }
  }
  // After it. `offset`: from the column that was fetched first.
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
