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
//   kRows, kAhead          heads of a token that a group of threads walks over, and how many of
//                          them are on their way from memory at a time
//   kHardware              there are instructions for 8-bit floats: from sm_89 on
// The launch has append_blocks() CTAs of kAppendThreads threads.
#pragma once
#include "/kiln/append_kv/token_heads.cuh"

namespace kiln {

// The groups of a CTA have the same heads of as many tokens, and all of a CTA's heads are of one
// kind: so what differs between queries, keys and values differs between CTAs only. CTAs that
// follow each other have the other heads of these tokens.
template <class Config>
__device__ __forceinline__ void append_kv(
    const typename TokensOf<Config::kSequences>::Type::Params& params) {
  using Tokens = typename TokensOf<Config::kSequences>::Type;
  const AppendParams& call = Tokens::call(params);
  constexpr u32 kGroups = kAppendThreads / AppendShape<Config>::kLanes, kRows = Config::kRows;
  const u32 heads = call.heads, heads_kv = call.heads_kv;
  const u32 chunks = append_chunks(heads, kRows), chunks_kv = append_chunks(heads_kv, kRows);
  const u32 all = chunks + 2 * chunks_kv;
  const typename Tokens::Token token =
      Tokens::token(params, blockIdx.x / all * kGroups + threadIdx.x / AppendShape<Config>::kLanes);
  const u32 chunk = blockIdx.x % all;
  if (chunk < chunks) {
    if constexpr (Config::kQuery) {
      TokenHeads<Config, HeadOf::query>(params, token).append(chunk * kRows, heads);
    }
  } else if (chunk < chunks + chunks_kv) {
    TokenHeads<Config, HeadOf::key>(params, token).append((chunk - chunks) * kRows, heads_kv);
  } else {
    TokenHeads<Config, HeadOf::value>(params, token)
        .append((chunk - chunks - chunks_kv) * kRows, heads_kv);
  }
}

}  // namespace kiln
