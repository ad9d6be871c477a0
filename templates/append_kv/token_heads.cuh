// Heads of one kind of one token, over which a group of lanes walks: where they lie, where they go,
// and what happens to them on the way.
#pragma once
#include "/kiln/append_kv/head_ring.cuh"
#include "/kiln/append_kv/head_shape.cuh"
#include "/kiln/append_kv/head_steps.cuh"

namespace kiln {

template <class Config, HeadOf kOf>
class TokenHeads {
 public:
  using Mine = Columns<Config, kOf>;
  using Tokens = typename TokensOf<Config::kSequences>::Type;
  using Input = typename Config::Input;
  static constexpr int kVector = Config::kVector, kHeld = Mine::kHeld;
  static constexpr bool kNorm = kOf != HeadOf::value && Config::kNorm;
  static constexpr bool kTurns = kOf != HeadOf::value && Config::kRotary > 0;
  static constexpr bool kQuantized = kOf != HeadOf::query && is_quantized<typename Config::Cache>;
  // Whether anything is computed between loads and stores.
  static constexpr bool kComputes = kNorm || kTurns || kQuantized;
  using Output = conditional<kQuantized, typename Config::Cache, Input>;

  __device__ __forceinline__ TokenHeads(const typename Tokens::Params& given,
                                        const typename Tokens::Token& token)
      : given_(given), token_(token), exists_(Tokens::exists(given, token, kOf)) {}

  // kRows heads from the first on, or what there are: `heads` in all. All lanes of a warp call it
  // together.
  __device__ __forceinline__ void append(u32 first, u32 heads) {
    const u32 count = min(heads - first, static_cast<u32>(Config::kRows));
    const TokenStrides& strides = kOf == HeadOf::query ? call().query_at
                                  : kOf == HeadOf::key ? call().key_at
                                                       : call().value_at;
    const void* const source = kOf == HeadOf::query ? call().query
                               : kOf == HeadOf::key ? call().key
                                                    : call().value;
    HeadRing<Config, kOf> ring(static_cast<const Input*>(source) +
                                   Tokens::offset(given_, token_, strides) + first * strides.head,
                               strides.head, count, exists_);
    find(first);
#pragma unroll 1
    for (u32 i = 0; i < count; ++i) {
      write(ring.next());
      if constexpr (kQuantized) {
        if (scale_step() != 0 && i + 1 < count) read_scale(first + i + 1);
      }
    }
  }

 private:
  __device__ __forceinline__ const AppendParams& call() const { return Tokens::call(given_); }

  // Finds what all heads of the token share, and where the first one goes. This happens while the
  // first heads are on their way.
  __device__ __forceinline__ void find(u32 first) {
    i64 position = 0, slot = -1;
    if (kTurns && exists_) position = rotated_as();
    if (kOf != HeadOf::query && exists_) slot = Tokens::slot(given_, token_);
    if constexpr (kTurns) rotation_.load(call(), position, exists_);
    if constexpr (kNorm) norm_.load(call());
    if constexpr (kQuantized) read_scale(first);
    if constexpr (kOf == HeadOf::query) {
      writes_ = exists_;
      out_ = static_cast<Output*>(call().query_out) +
             Tokens::offset(given_, token_, call().query_out_at) + first * out_step();
    } else {
      writes_ = slot >= 0 && slot < call().cache_slots;
      const CacheStrides& strides = cache_at();
      const u32 page = static_cast<u32>(slot) / call().page_size;
      const u32 place = static_cast<u32>(slot) % call().page_size;
      out_ = static_cast<Output*>(kOf == HeadOf::key ? call().k_cache : call().v_cache) +
             page * strides.page + place * strides.token + first * out_step();
    }
  }
  __device__ __forceinline__ const CacheStrides& cache_at() const {
    return kOf == HeadOf::key ? call().k_cache_at : call().v_cache_at;
  }
  __device__ __forceinline__ i64 out_step() const {
    return kOf == HeadOf::query ? call().query_out_at.head : cache_at().head;
  }
  __device__ __forceinline__ i64 rotated_as() const {
    const i64 last = static_cast<i64>(call().max_positions) - 1;
    return min(max(Tokens::position(given_, token_, kOf), 0ll), last);
  }

  __device__ __forceinline__ i64 scale_step() const {
    return kOf == HeadOf::key ? call().k_scale_stride : call().v_scale_stride;
  }
  __device__ __forceinline__ void read_scale(u32 head) {
    const float* const scale = kOf == HeadOf::key ? call().k_scale : call().v_scale;
    divisor_ = Divisor(scale == nullptr ? 1.0f : scale[head * scale_step()]);
  }

  // A head with which nothing is computed keeps its bits, also those of NaN.
  __device__ __forceinline__ void write(HeadParts<Config> head) {
    if constexpr (kComputes) {
      HeadValues<Config> values;
#pragma unroll
      for (int i = 0; i < 2 * kHeld * kVector; ++i) {
        const int part = i / kVector;
        values[part / 2][part % 2][i % kVector] = head.parts[part / 2][part % 2][i % kVector];
      }
      if constexpr (kNorm) norm_.apply(values, call());
      if constexpr (kTurns) rotation_.apply(values);
      if (writes_) store(values);
    } else {
      if (writes_) store(head);
    }
    out_ += out_step();
  }

  __device__ __forceinline__ void store(const HeadValues<Config>& values) const {
    if constexpr (kQuantized) {
#pragma unroll
      for (int i = 0; i < 2 * kHeld; ++i) {
        const u32 unit = Mine::unit_at(i / 2);
        if (!Mine::has(unit)) continue;
        store_quantized<Output, Config::kHardware>(out_ + Mine::at(unit, i % 2),
                                                   values[i / 2][i % 2], divisor_);
      }
    } else {
      HeadParts<Config> head;
#pragma unroll
      for (int i = 0; i < 2 * kHeld; ++i) head.parts[i / 2][i % 2].set(values[i / 2][i % 2]);
      store(head);
    }
  }
  __device__ __forceinline__ void store(const HeadParts<Config>& head) const {
#pragma unroll
    for (int i = 0; i < 2 * kHeld; ++i) {
      const u32 unit = Mine::unit_at(i / 2);
      if (!Mine::has(unit)) continue;
      head.parts[i / 2][i % 2].store_whole_to(reinterpret_cast<Input*>(out_) +
                                              Mine::at(unit, i % 2));
    }
  }

  const typename Tokens::Params& given_;
  typename Tokens::Token token_;
  bool exists_, writes_;
  Output* out_;
  Divisor divisor_{1.0f};
  HeadNorm<Config, kOf> norm_;
  HeadRotation<Config, kOf> rotation_;
};

}  // namespace kiln
