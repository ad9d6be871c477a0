// Sums the parts of an output tile whose K is divided among several CTAs. The CTA that arrives last
// adds them up in the order of K, so the sum does not depend on which CTA that is.
#pragma once
#include "/kiln/base/ticket.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/raster.cuh"

namespace kiln {

// Convert four outputs of a 16 x 8 accumulator to and from their form in the workspace.
__device__ __forceinline__ float4 to_quad(const float (&acc)[4]) {
  return {acc[0], acc[1], acc[2], acc[3]};
}
__device__ __forceinline__ float4 to_quad(const u32 (&acc)[2]) {
  return {to_float(f16{static_cast<u16>(acc[0])}), to_float(f16{static_cast<u16>(acc[0] >> 16)}),
          to_float(f16{static_cast<u16>(acc[1])}), to_float(f16{static_cast<u16>(acc[1] >> 16)})};
}
__device__ __forceinline__ void from_quad(float (&acc)[4], const float4& quad) {
  acc[0] = quad.x, acc[1] = quad.y, acc[2] = quad.z, acc[3] = quad.w;
}
__device__ __forceinline__ void from_quad(u32 (&acc)[2], const float4& quad) {
  acc[0] = pack2<f16>(quad.x, quad.y), acc[1] = pack2<f16>(quad.z, quad.w);
}

// Returns true in the CTA that finishes the tile; its accumulators then hold the sum of all parts.
// The workspace holds a flag for each part, then the parts as [part][quad][thread] quads of four
// floats, so that a warp writes and reads whole lines.
template <int kThreads, class Accumulator, int kTilesM, int kTilesN>
__device__ __forceinline__ bool sum_parts(const GemmParams& params, const TileShare& share,
                                          Accumulator (&accumulators)[kTilesM][kTilesN]) {
  constexpr int kQuads = kTilesM * kTilesN;
  u64* flags = static_cast<u64*>(params.workspace) + share.first_part;
  float4* quads = reinterpret_cast<float4*>(static_cast<char*>(params.workspace) +
                                            gemm_flag_bytes(share.launch_parts)) +
                  static_cast<i64>(share.first_part) * kQuads * kThreads + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    quads[(share.part * kQuads + i) * kThreads] = to_quad(accumulators[i / kTilesN][i % kTilesN]);
  }
  if (!arrives_last(flags, params.nonce, share.part, share.parts)) return false;
  // Its own part is read back too: adding that from registers in order would take a second set.
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    from_quad(accumulators[i / kTilesN][i % kTilesN], __ldcg(quads + i * kThreads));
  }
#pragma unroll 1
  for (int other = 1; other < share.parts; ++other) {
    quads += kQuads * kThreads;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float4 part = __ldcg(quads + i * kThreads);
      const float4 sum = to_quad(accumulators[i / kTilesN][i % kTilesN]);
      from_quad(accumulators[i / kTilesN][i % kTilesN],
                {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w});
    }
  }
  return true;
}

}  // namespace kiln
