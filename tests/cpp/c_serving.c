/* The operations of kiln/c_serving.h from C on the emulated device against plain
 * loops: options, plans, errors. */
#include <kiln/c_serving.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      printf("%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, kiln_last_error()); \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)

enum { kParts = 3, kTokens = 2, kHeads = 2, kDim = 20 };
static float outs[kParts][kTokens][kHeads][kDim], lses[kParts][kHeads][kTokens],
    out[kTokens][kHeads][kDim], lse[kHeads][kTokens], sinks[kHeads];

/* Numbers in [-1, 1), the same in every run. */
static float next_number(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (float)(1 << 23) - 1.0f;
}
static void fill(float* data, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) data[i] = next_number();
}
static kiln_tensor tensor(void* data, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t shape[4] = {a, b, c, d};
  return kiln_contiguous(data, KILN_F32, KILN_CPU, 0, rank, shape);
}

/* Whether out and lse are right for LSEs that are logarithms to exp(unit). */
static int is_merged(double unit, int has_sinks) {
  int t, h, i, p;
  for (t = 0; t < kTokens; ++t) {
    for (h = 0; h < kHeads; ++h) {
      double sum = 0, all;
      for (p = 0; p < kParts; ++p) sum += exp(lses[p][h][t] * unit);
      all = log(sum);
      if (!(fabs(lse[h][t] * unit - all) <= 1e-5)) return 0;
      for (i = 0; i < kDim; ++i) {
        double value = 0;
        for (p = 0; p < kParts; ++p) value += exp(lses[p][h][t] * unit) / sum * outs[p][t][h][i];
        if (has_sinks) value /= 1 + exp(sinks[h] - all);
        if (!(fabs(out[t][h][i] - value) <= 1e-5)) return 0;
      }
    }
  }
  return 1;
}

static void test_merging(void) {
  const kiln_tensor all = tensor(outs, 4, kParts, kTokens, kHeads, kDim);
  const kiln_tensor logs = tensor(lses, 3, kParts, kHeads, kTokens, 0);
  const kiln_tensor merged = tensor(out, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor merged_lse = tensor(lse, 2, kHeads, kTokens, 0, 0);
  const kiln_tensor sink = tensor(sinks, 1, kHeads, 0, 0, 0);
  kiln_merge_states_options options = {.struct_size = sizeof options};
  memset(out, 0xff, sizeof out), memset(lse, 0xff, sizeof lse);
  CHECK(kiln_merge_states(&all, &logs, &merged, &merged_lse, NULL, NULL) == KILN_OK);
  CHECK(is_merged(1, 0));
  options.base = KILN_LSE_2, options.sinks = &sink;
  memset(out, 0xff, sizeof out), memset(lse, 0xff, sizeof lse);
  CHECK(kiln_merge_states(&all, &logs, &merged, &merged_lse, &options, NULL) == KILN_OK);
  CHECK(is_merged(log(2), 1));
  options.base = 2;
  CHECK(kiln_merge_states(&all, &logs, &merged, NULL, &options, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "merge_states: base"));
}

static void test_plan_of_merging(void) {
  const kiln_tensor all = tensor(NULL, 4, kParts, kTokens, kHeads, kDim);
  const kiln_tensor logs = tensor(NULL, 3, kParts, kHeads, kTokens, 0);
  const kiln_tensor merged = tensor(NULL, 3, kTokens, kHeads, kDim, 0);
  const kiln_tensor merged_lse = tensor(NULL, 2, kHeads, kTokens, 0, 0);
  void* pointers[4];
  kiln_plan* plan = NULL;
  pointers[0] = outs, pointers[1] = lses, pointers[2] = out, pointers[3] = lse;
  CHECK(kiln_plan_merge_states(&all, &logs, &merged, &merged_lse, NULL, &plan) == KILN_OK);
  CHECK(kiln_plan_workspace_bytes(plan) == 0);
  memset(out, 0xff, sizeof out), memset(lse, 0xff, sizeof lse);
  CHECK(kiln_plan_launch(plan, pointers, 4, NULL, NULL) == KILN_OK);
  CHECK(is_merged(1, 0));
  CHECK(kiln_plan_launch(plan, pointers, 3, NULL, NULL) == KILN_INVALID_ARGUMENT);
  kiln_plan_destroy(plan);
}

enum { kPages = 2, kPageSize = 3 };
static float tables[2][8][kDim / 2], weights[kDim];

/* Keys and values in f16 that hold small whole numbers, whose bits are easily made. */
static uint16_t half_of(int number) {
  int exponent = 0;
  while (2 << exponent <= number) ++exponent;
  return (uint16_t)(number == 0 ? 0 : (15 + exponent) << 10 | ((number << 10 >> exponent) & 1023));
}

static void test_appending(void) {
  static uint16_t keys[kTokens][kHeads][kDim], values[kTokens][kHeads][kDim],
      caches[kPages][kPageSize][kHeads][2 * kDim], query[kTokens][kHeads][kDim];
  static int8_t bytes[2][kPages][kPageSize][kHeads][kDim];
  int64_t slots[kTokens] = {4, -1}, positions[kTokens] = {0, 1};
  const int64_t strides[4] = {kPageSize * kHeads * 2 * kDim, kHeads * 2 * kDim, 2 * kDim, 1};
  const int64_t shape[4] = {kPages, kPageSize, kHeads, kDim};
  kiln_tensor key = tensor(keys, 3, kTokens, kHeads, kDim, 0), value = key, asked = key;
  kiln_tensor k_cache = kiln_contiguous(caches, KILN_F16, KILN_CPU, 0, 4, shape), v_cache;
  kiln_tensor slot_mapping = tensor(slots, 1, kTokens, 0, 0, 0), places = slot_mapping;
  const kiln_tensor cos = tensor(tables[0], 2, 8, kDim / 2, 0, 0);
  const kiln_tensor sin = tensor(tables[1], 2, 8, kDim / 2, 0, 0);
  const kiln_tensor weight = tensor(weights, 1, kDim, 0, 0, 0);
  kiln_append_kv_options options = {.struct_size = sizeof options};
  float eps = 0;
  int t, h, i, wrong = 0;
  key.dtype = value.dtype = asked.dtype = KILN_F16;
  slot_mapping.dtype = places.dtype = KILN_I64, places.data = positions;
  value.data = values, asked.data = query;
  memcpy(k_cache.strides, strides, sizeof strides);
  v_cache = k_cache, v_cache.data = &caches[0][0][0][kDim];
  for (t = 0; t < kTokens; ++t) {
    for (h = 0; h < kHeads; ++h) {
      for (i = 0; i < kDim; ++i) {
        keys[t][h][i] = half_of(h * kDim + i), values[t][h][i] = half_of(2 * i);
        query[t][h][i] = half_of(i % 2 ? 0 : 2);
      }
    }
  }
  memset(caches, 0xff, sizeof caches);
  CHECK(kiln_append_kv(&key, &value, &k_cache, &v_cache, &slot_mapping, NULL, NULL) == KILN_OK);
  for (i = 0; i < kPages * kPageSize * kHeads * 2 * kDim; ++i) {
    const int column = i % (2 * kDim), head = i / (2 * kDim) % kHeads;
    const int number = column < kDim ? head * kDim + column : 2 * (column - kDim);
    const int is_written = i / (2 * kDim * kHeads) == 4;
    wrong += ((uint16_t*)caches)[i] != (is_written ? half_of(number) : 0xffff);
  }
  CHECK(wrong == 0);
  /* The second token's query is normed to the square root of 2 and 0, and turned by a right angle.
   */
  for (i = 0; i < kDim; ++i) weights[i] = (float)sqrt(2.0);
  for (t = 0; t < 8; ++t) {
    for (i = 0; i < kDim / 2; ++i) tables[0][t][i] = 0, tables[1][t][i] = 1;
  }
  options.query = options.query_out = &asked, options.q_weight = &weight, options.eps = &eps;
  options.cos = &cos, options.sin = &sin, options.positions = &places, options.interleaved = 1;
  k_cache.dtype = v_cache.dtype = KILN_I8;
  k_cache.data = bytes[0], v_cache.data = bytes[1];
  for (i = 0; i < 3; ++i) k_cache.strides[i] /= 2, v_cache.strides[i] /= 2;
  CHECK(kiln_append_kv(&key, &value, &k_cache, &v_cache, &slot_mapping, &options, NULL) == KILN_OK);
  for (i = 0; i < kDim; ++i) {
    wrong += query[1][1][i] != half_of(i % 2 ? 2 : 0) && query[1][1][i] != 0x8000;
    wrong += bytes[1][1][1][0][i] != 2 * i;
    wrong += bytes[0][1][1][0][i] != (i % 2 ? i - 1 : -i - 1);
  }
  CHECK(wrong == 0);
  options.cos = NULL;
  CHECK(kiln_append_kv(&key, &value, &k_cache, &v_cache, &slot_mapping, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "append_kv: positions goes with cos and sin"));
}

static void test_plan_of_appending(void) {
  static float memory[4][kTokens * kHeads * kDim];
  const int64_t shape[4] = {1, kTokens, kHeads, kDim};
  int64_t slots[kTokens] = {1, 0};
  kiln_tensor key = tensor(NULL, 3, kTokens, kHeads, kDim, 0);
  kiln_tensor cache = kiln_contiguous(NULL, KILN_BF16, KILN_CPU, 0, 4, shape);
  kiln_tensor slot_mapping = tensor(NULL, 1, kTokens, 0, 0, 0);
  void* pointers[5];
  kiln_plan* plan = NULL;
  size_t i;
  key.dtype = KILN_BF16, slot_mapping.dtype = KILN_I64;
  for (i = 0; i < 4; ++i) pointers[i] = memory[i];
  pointers[4] = slots;
  memset(memory[0], 0x3f, sizeof memory[0]), memset(memory[1], 0x40, sizeof memory[1]);
  CHECK(kiln_plan_append_kv(&key, &key, &cache, &cache, &slot_mapping, NULL, &plan) == KILN_OK);
  CHECK(kiln_plan_launch(plan, pointers, 5, NULL, NULL) == KILN_OK);
  CHECK(memcmp(memory[0], memory[2], kTokens * kHeads * kDim * 2) == 0);
  CHECK(memcmp(memory[1], memory[3], kTokens * kHeads * kDim * 2) == 0);
  kiln_plan_destroy(plan);
}

int main(void) {
  fill(&outs[0][0][0][0], sizeof outs / sizeof(float));
  fill(&lses[0][0][0], sizeof lses / sizeof(float));
  fill(sinks, kHeads);
  CHECK(kiln_set_device("emulator") == KILN_OK);
  test_merging();
  test_plan_of_merging();
  test_appending();
  test_plan_of_appending();
  if (failures == 0) printf("ok\n");
  return failures != 0;
}
