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

int main(void) {
  fill(&outs[0][0][0][0], sizeof outs / sizeof(float));
  fill(&lses[0][0][0], sizeof lses / sizeof(float));
  fill(sinks, kHeads);
  CHECK(kiln_set_device("emulator") == KILN_OK);
  test_merging();
  test_plan_of_merging();
  if (failures == 0) printf("ok\n");
  return failures != 0;
}
