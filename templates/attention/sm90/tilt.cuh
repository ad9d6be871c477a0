// Logits that grow by the same from key to key, as ALiBi's do under a causal mask. The tensor cores
// add that growth to the scores: one more step of K multiplies it, as three bfloat16, with the
// keys' places in their tile, which a bfloat16 holds exactly up to 256.
//
//   scores = Q K^T + [high middle low 0 ..] [place place place 0 ..]^T
//
// That takes a sixteenth of the products' time with head dim 128 and an eighth with 64, where one
// addition a score took a tenth and a quarter. What the scores of a row have in common goes into
// the exponents: see TiltedScale.
//
// All queries of a tile have the same growth. So eight rows of 16 bytes are stored, and wgmma reads
// them for every eight rows and for both halves of K; it reads each key's place twice, too. Every
// product is thus added twice, so that half of the growth is stored.
#pragma once
#include "/kiln/attention/sm90/shape.cuh"
#include "/kiln/base/pack.cuh"

namespace kiln {

// Writes the places of a tile's keys. The CTA's threads call it and then meet; the fence in
// write_growth(), which follows in the warp that announces Q, is for the places too.
template <class Config>
__device__ __forceinline__ void write_places() {
  using Shape = AttentionSm90Shape<Config>;
  static_assert(Shape::kBlockKv <= 256, "tilt: a bfloat16 holds the places of up to 256 keys");
  const u32 key = threadIdx.x;
  if (key >= Shape::kBlockKv) return;
  const float place = to_float(static_cast<int>(key));
  store_shared_16(Shape::places() + key * kAttentionTiltBytes,
                  {pack2<bf16>(place, place), pack2<bf16>(place, 0.0f), 0, 0});
}

// Writes the growth of a stage's queries. Called by a whole warp, which then announces the stage.
template <class Config>
__device__ __forceinline__ void write_growth(u32 q_stage, float growth) {
  const float half = 0.5f * growth, high = to_float(from_float<bf16>(half));
  const float middle = to_float(from_float<bf16>(half - high));
  const u32 row = threadIdx.x % 32;
  if (row < 8) {
    store_shared_16(AttentionSm90Shape<Config>::growth(q_stage) + row * kAttentionTiltBytes,
                    {pack2<bf16>(high, middle), pack2<bf16>(half - high - middle, 0.0f), 0, 0});
    fence_async_proxy();
  }
  __syncwarp();
}

}  // namespace kiln
