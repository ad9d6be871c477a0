// Tells of the tokens of a launch where their rows are, where they go in the cache and as which
// position they rotate: one class for each way in which the host may say so. A Token is what is
// found out once from its number.
#pragma once
#include "/kiln/append_kv/params.h"
#include "/kiln/base/types.cuh"

namespace kiln {

enum class HeadOf { query, key, value };

// A slot_mapping and positions name them, token by token.
struct MappedTokens {
  using Params = AppendParams;
  using Token = u32;

  __device__ __forceinline__ static Token token(const Params&, u32 number) { return number; }
  __device__ __forceinline__ static const AppendParams& call(const Params& params) {
    return params;
  }
  __device__ __forceinline__ static bool exists(const Params& params, Token token, HeadOf) {
    return token < static_cast<u32>(params.tokens);
  }
  __device__ __forceinline__ static i64 offset(const Params&, Token token,
                                               const TokenStrides& strides) {
    return token * strides.token;
  }
  __device__ __forceinline__ static i64 slot(const Params& params, Token token) {
    return params.slots[token * params.slots_stride];
  }
  __device__ __forceinline__ static i64 position(const Params& params, Token token, HeadOf) {
    const i64 index = token * params.positions_stride;
    return params.wide_positions ? static_cast<const i64*>(params.positions)[index]
                                 : static_cast<const int*>(params.positions)[index];
  }
};

// They follow the keys that their sequence has in the cache.
struct SequenceTokens {
  using Params = AppendSequencesParams;
  struct Token {
    u32 number, sequence, place;  // its place among the new tokens of the sequence
  };

  __device__ __forceinline__ static Token token(const Params& params, u32 number) {
    const u32 sequence = number / params.len;
    return {number, sequence, number - sequence * params.len};
  }
  __device__ __forceinline__ static const AppendParams& call(const Params& params) {
    return params.call;
  }
  __device__ __forceinline__ static bool exists(const Params& params, const Token& token,
                                                HeadOf of) {
    const u32 count = of == HeadOf::query ? params.len_query : params.len_new;
    return token.number < static_cast<u32>(params.call.tokens) && token.place < count;
  }
  __device__ __forceinline__ static i64 offset(const Params&, const Token& token,
                                               const TokenStrides& strides) {
    return token.sequence * strides.sequence + token.place * strides.token;
  }
  __device__ __forceinline__ static i64 slot(const Params& params, const Token& token) {
    const u32 b = token.sequence;
    const i64 at = static_cast<i64>(params.cache_seqlens[b]) + token.place;
    const int entry = params.cache_batch_idx != nullptr ? params.cache_batch_idx[b] : b;
    const i64 page_size = params.call.page_size;
    if (at < 0) return -1;
    if (params.block_table == nullptr) return at < page_size ? entry * page_size + at : -1;
    i64 first = entry * params.block_table_row, count = params.width;
    if (params.kv_indptr != nullptr) {
      first = params.kv_indptr[entry];
      count = params.kv_indptr[entry + 1] - first;
    }
    const i64 column = static_cast<u32>(at) / params.call.page_size;
    if (column >= count) return -1;
    return params.block_table[first + column] * page_size +
           static_cast<u32>(at) % params.call.page_size;
  }
  __device__ __forceinline__ static i64 position(const Params& params, const Token& token,
                                                 HeadOf of) {
    const bool advances = of != HeadOf::query || params.queries_advance != 0;
    return static_cast<i64>(params.cache_seqlens[token.sequence]) + (advances ? token.place : 0);
  }
};

template <bool kSequences>
struct TokensOf {
  using Type = MappedTokens;
};
template <>
struct TokensOf<true> {
  using Type = SequenceTokens;
};

}  // namespace kiln
