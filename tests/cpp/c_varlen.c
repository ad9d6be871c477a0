/* Attention over sequences of their own lengths from C, on the emulated device, against a plain
 * loop: packed keys, a cache, pages, new keys, plans, errors. */
#include <kiln/c_serving.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      printf("%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, kiln_last_error()); \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)

static float from_bf16(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

/* Numbers in [-1, 1), the same in every run. */
static void fill(uint16_t* data, size_t count) {
  static uint32_t state = 1;
  size_t i;
  for (i = 0; i < count; ++i) {
    const float value = (float)((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1.0f;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    data[i] = (uint16_t)(word >> 16);
  }
}

/* Three sequences, the second without queries; keys of 9, 4 and 21 tokens. */
enum { kBatch = 3, kTokens = 7, kKeys = 34, kHeads = 2, kDim = 32, kPage = 8, kPages = 8 };
enum { kWidth = 4, kRow = kHeads * kDim };
static const int32_t kStartsQ[kBatch + 1] = {0, 5, 5, 7};
static const int32_t kStartsK[kBatch + 1] = {0, 9, 13, 34};
static const int32_t kUsed[kBatch] = {9, 4, 21};
static int32_t table[kBatch * kWidth] = {5, 2, -1, -1, 7, -1, -1, -1, 0, 6, 3, -1};
static uint16_t q_data[kTokens * kRow], k_data[kKeys * kRow], v_data[kKeys * kRow];
static uint16_t k_pages[kPages * kPage * kRow], v_pages[kPages * kPage * kRow];
static uint16_t out_data[kTokens * kRow];
static float lse_data[kHeads * kTokens];

static kiln_tensor indices(const int32_t* data, int64_t count) {
  return kiln_contiguous((void*)data, KILN_I32, KILN_CPU, 0, 1, &count);
}
static kiln_tensor rows(void* data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
  int64_t shape[4];
  shape[0] = n0, shape[1] = n1, shape[2] = n2, shape[3] = n3;
  return kiln_contiguous(data, KILN_BF16, KILN_CPU, 0, rank, shape);
}
static kiln_tensor pages_of_table(void) {
  int64_t shape[2];
  shape[0] = kBatch, shape[1] = kWidth;
  return kiln_contiguous(table, KILN_I32, KILN_CPU, 0, 2, shape);
}

/* The keys of the packed tensors, also in the pages that the table names. The rest are NaNs. */
static void fill_pages(void) {
  int b, i;
  memset(k_pages, 0xff, sizeof k_pages), memset(v_pages, 0xff, sizeof v_pages);
  for (b = 0; b < kBatch; ++b) {
    for (i = 0; i < kUsed[b]; ++i) {
      const int to = table[b * kWidth + i / kPage] * kPage + i % kPage;
      const int from = kStartsK[b] + i;
      memcpy(k_pages + to * kRow, k_data + from * kRow, kRow * sizeof *k_data);
      memcpy(v_pages + to * kRow, v_data + from * kRow, kRow * sizeof *v_data);
    }
  }
}

/* Whether a row of out is softmax(q k^T / sqrt(dim)) v over the first `keys` keys of sequence b,
 * and, unless null, *lse its log-sum-exp. */
static int row_is_right(const uint16_t* row, int b, int keys, int query, int head,
                        const float* lse) {
  double weights[kKeys], sum = 0;
  int i, d;
  for (i = 0; i < keys; ++i) {
    const uint16_t* const key = k_data + (kStartsK[b] + i) * kRow + head * kDim;
    double logit = 0;
    for (d = 0; d < kDim; ++d) {
      logit += (double)from_bf16(q_data[query * kRow + head * kDim + d]) * from_bf16(key[d]);
    }
    sum += weights[i] = exp(logit / sqrt(kDim));
  }
  for (d = 0; d < kDim; ++d) {
    double expected = 0;
    for (i = 0; i < keys; ++i) {
      const uint16_t* const value = v_data + (kStartsK[b] + i) * kRow + head * kDim;
      expected += weights[i] / sum * from_bf16(value[d]);
    }
    if (!(fabs(from_bf16(row[head * kDim + d]) - expected) <= 0.01)) return 0;
  }
  return lse == NULL || fabs(*lse - log(sum)) <= 0.001;
}

/* Of all queries of the packed calls; query i of n sees all but the last n - 1 - i keys. */
static int is_right(int causal) {
  int b, query, head;
  for (b = 0; b < kBatch; ++b) {
    for (query = kStartsQ[b]; query < kStartsQ[b + 1]; ++query) {
      const int keys = kUsed[b] - (causal ? kStartsQ[b + 1] - 1 - query : 0);
      for (head = 0; head < kHeads; ++head) {
        const float* const lse = lse_data + head * kTokens + query;
        if (!row_is_right(out_data + query * kRow, b, keys, query, head, lse)) return 0;
      }
    }
  }
  return 1;
}
static void forget(void) {
  memset(out_data, 0xff, sizeof out_data), memset(lse_data, 0xff, sizeof lse_data);
}

static void test_packed_and_paged(void) {
  /* Trees without branches: causal masks. */
  static const int64_t words[kTokens] = {1, 3, 7, 15, 31, 1, 3}, word_count = kTokens;
  const kiln_tensor chain = kiln_contiguous((void*)words, KILN_I64, KILN_CPU, 0, 1, &word_count);
  kiln_sequence_options chains = {.struct_size = sizeof chains, .tree_mask = &chain};
  const kiln_tensor q = rows(q_data, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor out = rows(out_data, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor k = rows(k_data, 3, kKeys, kHeads, kDim, 0);
  const kiln_tensor v = rows(v_data, 3, kKeys, kHeads, kDim, 0);
  const kiln_tensor paged_k = rows(k_pages, 4, kPages, kPage, kHeads, kDim);
  const kiln_tensor paged_v = rows(v_pages, 4, kPages, kPage, kHeads, kDim);
  const kiln_tensor starts_q = indices(kStartsQ, kBatch + 1);
  const kiln_tensor starts_k = indices(kStartsK, kBatch + 1), used = indices(kUsed, kBatch);
  const kiln_tensor pages = pages_of_table();
  const int64_t lse_shape[2] = {kHeads, kTokens};
  const kiln_tensor lse = kiln_contiguous(lse_data, KILN_F32, KILN_CPU, 0, 2, lse_shape);
  kiln_attention_options attention = {.struct_size = sizeof attention};
  kiln_varlen_options options = {.struct_size = sizeof options};
  options.cu_seqlens_q = &starts_q, options.cu_seqlens_k = &starts_k;
  options.max_seqlen_q = 5, options.max_seqlen_k = 21;
  forget();
  CHECK(kiln_flash_attention_varlen(&q, &k, &v, &out, &lse, &options, NULL) == KILN_OK);
  CHECK(is_right(0));
  attention.causal = 1, options.attention = &attention;
  forget();
  CHECK(kiln_flash_attention_varlen(&q, &k, &v, &out, &lse, &options, NULL) == KILN_OK);
  CHECK(is_right(1));
  options.cu_seqlens_k = NULL, options.seqused_k = &used, options.block_table = &pages;
  options.num_splits = 1;
  forget();
  CHECK(kiln_flash_attention_varlen(&q, &paged_k, &paged_v, &out, &lse, &options, NULL) == KILN_OK);
  CHECK(is_right(1));
  attention.causal = 0, options.sequences = &chains;
  forget();
  CHECK(kiln_flash_attention_varlen(&q, &paged_k, &paged_v, &out, &lse, &options, NULL) == KILN_OK);
  CHECK(is_right(1));
}

/* Sequences 0 and 2 with one query each, rows 0 and 1 of q. */
static void test_kvcache(void) {
  static int32_t used_two[2], table_two[2 * kWidth];
  const kiln_tensor q = rows(q_data, 4, 2, 1, kHeads, kDim);
  const kiln_tensor out = rows(out_data, 4, 2, 1, kHeads, kDim);
  const kiln_tensor k = rows(k_pages, 4, kPages, kPage, kHeads, kDim);
  const kiln_tensor v = rows(v_pages, 4, kPages, kPage, kHeads, kDim);
  const kiln_tensor lengths = indices(used_two, 2);
  const int64_t shape[2] = {2, kWidth};
  const kiln_tensor pages = kiln_contiguous(table_two, KILN_I32, KILN_CPU, 0, 2, shape);
  kiln_kvcache_options options = {.struct_size = sizeof options};
  enum { kPlanWords = 16 * 2048 };
  static int32_t memory[kPlanWords + 4];
  int32_t* const plan_data = memory + (16 - (uintptr_t)memory % 16) % 16 / sizeof *memory;
  kiln_tensor plan;
  kiln_sequence_options planned = {.struct_size = sizeof planned, .plan = &plan};
  int64_t words = 0;
  int head;
  used_two[0] = kUsed[0], used_two[1] = kUsed[2];
  memcpy(table_two, table, kWidth * sizeof *table);
  memcpy(table_two + kWidth, table + 2 * kWidth, kWidth * sizeof *table);
  options.cache_seqlens = &lengths, options.block_table = &pages;
  forget();
  CHECK(kiln_flash_attention_with_kvcache(&q, &k, &v, &out, NULL, &options, NULL) == KILN_OK);
  for (head = 0; head < kHeads; ++head) {
    CHECK(row_is_right(out_data, 0, kUsed[0], 0, head, NULL));
    CHECK(row_is_right(out_data + kRow, 2, kUsed[2], 1, head, NULL));
  }
  /* Likewise with a plan, of which the call says when it is too short. */
  CHECK(kiln_plan_attention_with_kvcache(&q, &k, &v, NULL, &words, &options, NULL) == KILN_OK);
  CHECK(words > 0 && words <= kPlanWords);
  plan = kiln_contiguous(plan_data, KILN_I32, KILN_CPU, 0, 1, &words);
  CHECK(kiln_plan_attention_with_kvcache(&q, &k, &v, &plan, NULL, &options, NULL) == KILN_OK);
  options.sequences = &planned;
  forget();
  CHECK(kiln_flash_attention_with_kvcache(&q, &k, &v, &out, NULL, &options, NULL) == KILN_OK);
  for (head = 0; head < kHeads; ++head) {
    CHECK(row_is_right(out_data, 0, kUsed[0], 0, head, NULL));
    CHECK(row_is_right(out_data + kRow, 2, kUsed[2], 1, head, NULL));
  }
  plan.shape[0] = 16;
  CHECK(kiln_flash_attention_with_kvcache(&q, &k, &v, &out, NULL, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "plan must have") != NULL);
}

/* The same two sequences by their rows of the whole table, or of a list of pages; and with their
 * last keys not yet in the cache, in a call and in a plan. */
static void test_new_keys(void) {
  static const int32_t numbers[2] = {0, 2}, starts[kBatch + 1] = {1, 3, 4, 7};
  static const int32_t list[7] = {-9, 5, 2, 7, 0, 6, 3};
  static int32_t lengths[2];
  static float ones[32 * kDim / 2], zeros[32 * kDim / 2]; /* a rotation by no angle */
  const int64_t angles[2] = {32, kDim / 2};
  const kiln_tensor cosines = kiln_contiguous(ones, KILN_F32, KILN_CPU, 0, 2, angles);
  const kiln_tensor sines = kiln_contiguous(zeros, KILN_F32, KILN_CPU, 0, 2, angles);
  const kiln_tensor planned = rows(NULL, 4, 2, 1, kHeads, kDim);
  const kiln_tensor q = rows(q_data, 4, 2, 1, kHeads, kDim);
  const kiln_tensor out = rows(out_data, 4, 2, 1, kHeads, kDim);
  const kiln_tensor k = rows(k_pages, 4, kPages, kPage, kHeads, kDim);
  const kiln_tensor v = rows(v_pages, 4, kPages, kPage, kHeads, kDim);
  const kiln_tensor used = indices(lengths, 2), entries = indices(numbers, 2);
  const kiln_tensor offsets = indices(starts, kBatch + 1), pages = indices(list, 7);
  const kiln_tensor whole_table = pages_of_table();
  const int last = kStartsK[1] - 1, step = kKeys - kStartsK[1];
  kiln_tensor k_new = rows(k_data + last * kRow, 4, 2, 1, kHeads, kDim);
  kiln_tensor v_new = rows(v_data + last * kRow, 4, 2, 1, kHeads, kDim);
  kiln_sequence_options lists = {.struct_size = sizeof lists};
  kiln_cache_options cache = {.struct_size = sizeof cache};
  kiln_kvcache_options options = {.struct_size = sizeof options};
  kiln_plan* plan = NULL;
  void* pointers[12];
  int turn, head, i;
  for (i = 0; i < 32 * kDim / 2; ++i) ones[i] = 1;
  k_new.strides[0] = v_new.strides[0] = step * kRow;
  options.cache_seqlens = &used, options.cache = &cache;
  cache.cache_batch_idx = &entries;
  for (turn = 0; turn < 4; ++turn) {
    const int appends = turn >= 2;
    options.block_table = turn % 2 == 0 ? &whole_table : NULL;
    options.sequences = turn % 2 == 0 ? NULL : &lists;
    lists.kv_indptr = &offsets, lists.kv_indices = &pages;
    lengths[0] = kUsed[0] - appends, lengths[1] = kUsed[2] - appends;
    cache.k_new = appends ? &k_new : NULL, cache.v_new = appends ? &v_new : NULL;
    if (appends) {
      memset(k_pages + (2 * kPage + 0) * kRow, 0xff, kRow * sizeof *k_pages);
      memset(v_pages + (3 * kPage + 4) * kRow, 0xff, kRow * sizeof *v_pages);
    }
    forget();
    if (turn != 3) {
      CHECK(kiln_flash_attention_with_kvcache(&q, &k, &v, &out, NULL, &options, NULL) == KILN_OK);
    } else {
      options.num_splits = 1;
      cache.rotary_cos = &cosines, cache.rotary_sin = &sines;
      CHECK(kiln_plan_flash_attention_with_kvcache(&planned, &k, &v, &planned, NULL, &options,
                                                   &plan) == KILN_OK);
      pointers[0] = q_data, pointers[1] = k_pages, pointers[2] = v_pages, pointers[3] = out_data;
      pointers[4] = lengths, pointers[5] = (void*)list, pointers[6] = (void*)starts;
      pointers[7] = (void*)numbers, pointers[8] = k_new.data, pointers[9] = v_new.data;
      pointers[10] = ones, pointers[11] = zeros;
      CHECK(kiln_plan_launch(plan, pointers, 12, NULL, NULL) == KILN_OK);
      pointers[8] = k_pages;
      CHECK(kiln_plan_launch(plan, pointers, 12, NULL, NULL) == KILN_INVALID_ARGUMENT);
      CHECK(strstr(kiln_last_error(), "k_cache shares memory with k_new") != NULL);
      kiln_plan_destroy(plan);
    }
    for (head = 0; head < kHeads; ++head) {
      CHECK(row_is_right(out_data, 0, kUsed[0], 0, head, NULL));
      CHECK(row_is_right(out_data + kRow, 2, kUsed[2], 1, head, NULL));
    }
  }
  cache.v_new = NULL;
  CHECK(kiln_flash_attention_with_kvcache(&q, &k, &v, &out, NULL, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "k_new goes with v_new") != NULL);
}

static void test_plans(void) {
  const kiln_tensor q = rows(NULL, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor k = rows(NULL, 3, kKeys, kHeads, kDim, 0);
  const kiln_tensor starts = indices(NULL, kBatch + 1), lengths = indices(NULL, 2);
  const kiln_tensor one = rows(NULL, 4, 2, 1, kHeads, kDim);
  const kiln_tensor cache = rows(NULL, 4, 2, 2 * kPage, kHeads, kDim);
  kiln_attention_options attention = {.struct_size = sizeof attention};
  kiln_varlen_options options = {.struct_size = sizeof options};
  kiln_kvcache_options cached = {.struct_size = sizeof cached};
  static const int32_t used[2] = {9, 4};
  void* pointers[6];
  kiln_plan* plan = NULL;
  attention.causal = 1, options.attention = &attention;
  options.cu_seqlens_q = options.cu_seqlens_k = &starts;
  options.max_seqlen_q = 5, options.max_seqlen_k = 21, options.num_splits = 1;
  CHECK(kiln_plan_flash_attention_varlen(&q, &k, &k, &q, NULL, &options, &plan) == KILN_OK);
  CHECK(kiln_plan_workspace_bytes(plan) == 0);
  pointers[0] = q_data, pointers[1] = k_data, pointers[2] = v_data, pointers[3] = out_data;
  pointers[4] = (void*)kStartsQ, pointers[5] = (void*)kStartsK;
  forget();
  CHECK(kiln_plan_launch(plan, pointers, 6, NULL, NULL) == KILN_OK);
  CHECK(row_is_right(out_data, 0, kUsed[0] - 4, 0, 0, NULL));
  CHECK(row_is_right(out_data + 6 * kRow, 2, kUsed[2], 6, 1, NULL));
  CHECK(kiln_plan_launch(plan, pointers, 5, NULL, NULL) == KILN_INVALID_ARGUMENT);
  kiln_plan_destroy(plan);

  /* A cache of two sequences, which is the first 32 packed rows: 16 for each. */
  cached.cache_seqlens = &lengths, cached.num_splits = 1;
  CHECK(kiln_plan_flash_attention_with_kvcache(&one, &cache, &cache, &one, NULL, &cached, &plan) ==
        KILN_OK);
  pointers[4] = (void*)used;
  forget();
  CHECK(kiln_plan_launch(plan, pointers, 5, NULL, NULL) == KILN_OK);
  CHECK(row_is_right(out_data, 0, 9, 0, 1, NULL));
  kiln_plan_destroy(plan);
}

static void test_errors(void) {
  const kiln_tensor q = rows(q_data, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor out = rows(out_data, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor one = rows(q_data, 4, 2, 1, kHeads, kDim);
  const kiln_tensor starts = indices(kStartsQ, kBatch + 1);
  kiln_attention_options attention = {.struct_size = sizeof attention};
  kiln_varlen_options options = {.struct_size = sizeof options};
  kiln_kvcache_options cached = {.struct_size = sizeof cached};
  CHECK(kiln_flash_attention_varlen(&q, &q, &q, &out, NULL, NULL, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "flash_attention_varlen: cu_seqlens_q is needed") != NULL);
  options.cu_seqlens_q = options.cu_seqlens_k = &starts;
  options.num_splits = 2;
  CHECK(kiln_flash_attention_varlen(&q, &q, &q, &out, NULL, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "num_splits must be 0") != NULL);
  options.num_splits = 0, options.attention = &attention;
  attention.layout = KILN_BHSD;
  CHECK(kiln_flash_attention_varlen(&q, &q, &q, &out, NULL, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "layout must be left as it is") != NULL);
  options.struct_size = 0;
  CHECK(kiln_flash_attention_varlen(&q, &q, &q, &out, NULL, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "sizeof(kiln_varlen_options)") != NULL);
  CHECK(kiln_flash_attention_with_kvcache(&one, &one, &one, &one, NULL, &cached, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "flash_attention_with_kvcache: cache_seqlens") != NULL);
}

int main(void) {
  CHECK(kiln_set_device("emulator:sm_80") == KILN_OK);
  fill(q_data, kTokens * kRow), fill(k_data, kKeys * kRow), fill(v_data, kKeys * kRow);
  fill_pages();
  test_packed_and_paged();
  test_kvcache();
  test_new_keys();
  test_plans();
  test_errors();
  if (failures == 0) printf("attention with lengths from C: ok\n");
  return failures != 0;
}
