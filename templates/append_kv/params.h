// The run-time arguments of the kernel that appends keys and values to a paged cache, and its
// launch arithmetic, shared by host and device. For each token i with slot s = slots[i]:
//   k_cache[s / page_size, s % page_size, h] = quantize(rotate(norm(key[i, h])) / k_scale)
//   v_cache[s / page_size, s % page_size, h] = quantize(value[i, h] / v_scale)
//   query_out[i, h] = rotate(norm(query[i, h]))
// in fp32, rounded once at the end. A slot outside of the cache, such as -1, is not written.
//
// Or the tokens of a launch belong to sequences, each of which has some keys in the cache: its
// tokens go behind these, see AppendSequencesParams.
#pragma once

namespace kiln {

// Distances between the sequences, if there are any, tokens and heads of a tensor, in elements.
struct TokenStrides {
  long long sequence, token, head;
};
// Between the pages, the tokens of a page, and the heads of a cache.
struct CacheStrides {
  long long page, token, head;
};

// query_out may be query itself: each thread reads its elements of a head before it writes them,
// and no other thread reads them.
struct AppendParams {
  const void* key;         // [tokens, heads_kv, kDim]
  const void* value;       // [tokens, heads_kv, kDimV]
  void* k_cache;           // [pages, page_size, heads_kv, kDim]
  void* v_cache;           // [pages, page_size, heads_kv, kDimV]
  const long long* slots;  // [tokens]
  const void* query;       // [tokens, heads, kDim]; unused unless Config::kQuery
  void* query_out;
  const void* q_weight;   // [kDim], or null: queries are not normed
  const void* k_weight;   // [kDim], or null
  const void* positions;  // [tokens], of 4 or 8 bytes; unused unless Config::kRotary, like the next
  const void* cos;        // [max_positions, kRotary / 2]
  const void* sin;
  const float* k_scale;  // of heads_kv, or null: 1; unused unless the cache is quantised
  const float* v_scale;
  TokenStrides key_at, value_at, query_at, query_out_at;
  CacheStrides k_cache_at, v_cache_at;
  long long slots_stride, positions_stride, cos_stride, sin_stride, k_scale_stride, v_scale_stride;
  int tokens, heads, heads_kv;  // heads is 0 without a query
  int page_size, cache_slots;   // pages * page_size, below 2^31
  int max_positions;            // a position outside of the tables takes their nearest row
  int wide_positions;           // 8 bytes each
  float eps;
};
static_assert(sizeof(AppendParams) % 8 == 0, "keep the argument block a whole number of words");

// The arguments of a launch whose tokens belong to sequences, `len` each, of which the first
// len_new have a key and a value and the first len_query a query. Token i of sequence b goes to
// position cache_seqlens[b] + i of the sequence's cache entry or pages, and rotates as this
// position says. Behind the entry's end, or its last page's, nothing is written. Of `call`, tokens
// counts those of all sequences, page_size is that of pages or the length of an entry, and slots
// and positions are unused.
struct AppendSequencesParams {
  AppendParams call;
  const int* cache_seqlens;    // [sequences]
  const int* block_table;      // [rows, width] or, with kv_indptr, a list; null: cache entries
  const int* kv_indptr;        // [rows + 1]: where each row of block_table begins, or null
  const int* cache_batch_idx;  // [sequences]: its entry or row; null: its own number
  long long block_table_row;
  int len, len_new, len_query;
  int width;            // pages of a row
  int queries_advance;  // 0: all queries of a sequence rotate as its first one
  int reserved;
};
static_assert(sizeof(AppendSequencesParams) % 8 == 0, "likewise");

constexpr int kAppendThreads = 128;

// The threads that share a head of `dim` elements, of which each holds pairs of vectors.
constexpr int append_lanes(int dim, int vector) {
  const int units = dim / (2 * vector);
  int lanes = 1;
  while (lanes < units && lanes < 32) lanes *= 2;
  return lanes;
}

// CTAs that share the heads of a kind, of which each has up to `rows`.
constexpr int append_chunks(int heads, int rows) { return heads / rows + (heads % rows != 0); }

// CTAs for so many tokens, of which each CTA has as many as groups of `lanes` threads.
constexpr long long append_blocks(long long tokens, int heads, int heads_kv, int lanes, int rows) {
  const int groups = kAppendThreads / lanes;
  const long long chunks = append_chunks(heads, rows) + 2ll * append_chunks(heads_kv, rows);
  return (tokens + groups - 1) / groups * chunks;
}

}  // namespace kiln
