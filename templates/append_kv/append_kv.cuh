// Appends keys and values to a paged cache in one launch, with what may go before: the RMS norm of
// each head, the rotary embedding, and the queries of the same tokens. A rendered kernel calls
// append_kv<Config>(params) with a Config of
//   Input, Cache           the dtypes of key, value and queries, f16 or bf16; and of the caches:
//                          Input, or f8_e4m3, f8_e5m2 or i8
//   Weight, Table          the dtypes of the weights, and of cos and sin. An absent one has any
//   kDim, kDimV            the head dims, even
//   kQuery, kNorm          whether there are queries, and a weight of queries or keys
//   kRotary, kInterleaved  how many leading elements of a head rotate, 0 for none; and whether
//                          neighbours rotate together instead of both halves' elements
//   kSequences             whether the tokens belong to sequences, whose keys they follow in the
//                          cache, instead of having slots of their own: see tokens.cuh
//   kVector                elements of an access. Pairs of them divide the head dims, kRotary has
//                          whole ones in each half (if kInterleaved, in all), and so has the rest.
//                          Tensors begin, and tokens, heads and pages follow each other, at
//                          multiples of kVector of their own elements or of 16 bytes, whichever is
//                          less; cos and sin, if kInterleaved, of half as many
//   kRows                  heads of tokens that a group of threads has in flight
//   kHardware              there are instructions for 8-bit floats: from sm_89 on
// The launch has append_blocks() CTAs of kAppendThreads threads.
#pragma once
#include "/kiln/append_kv/head_row.cuh"

namespace kiln {

template <class Config>
__device__ __forceinline__ void append_kv(const typename HeadRow<Config>::TokenParams& params) {
  constexpr u32 kGroups = kAppendThreads / AppendShape<Config>::kLanes;
  // Neighbouring groups have neighbouring heads, so that they read and write whole lines.
  const u32 first =
      blockIdx.x * (kGroups * Config::kRows) + threadIdx.x / AppendShape<Config>::kLanes;
  HeadRow<Config> rows[Config::kRows];
#pragma unroll
  for (int i = 0; i < Config::kRows; ++i) rows[i].load(params, first + i * kGroups);
#pragma unroll
  for (int i = 0; i < Config::kRows; ++i) rows[i].finish(params);
}

}  // namespace kiln
