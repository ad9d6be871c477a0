/* The operations of kiln/c_moe.h from C on the emulated device: results, options, plans, errors,
 * and the layout of the structs as they were released. */
#include <kiln/c_moe.h>
#include <math.h>
#include <stddef.h>
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

enum { kTokens = 3, kColumns = 8, kExperts = 4, kTopK = 2 };

static kiln_tensor tensor(void* data, kiln_dtype dtype, int rank, int64_t a, int64_t b) {
  const int64_t shape[2] = {a, b};
  return kiln_contiguous(data, dtype, KILN_CPU, 0, rank, shape);
}

static void test_quantising(void) {
  static float x[2][kColumns] = {{1, -2, 127, 64}, {0, 0, 254, -254, 2}}, scales[2][2];
  static int8_t codes[2][kColumns];
  const kiln_tensor from = tensor(x, KILN_F32, 2, 2, kColumns);
  const kiln_tensor to = tensor(codes, KILN_I8, 2, 2, kColumns);
  kiln_tensor scale = tensor(scales, KILN_F32, 2, 2, 1);
  const int32_t row = 0, four = 4;
  kiln_quantize_options options = {.struct_size = sizeof options};
  void* pointers[3];
  kiln_plan* plan = NULL;
  CHECK(kiln_quantize(&from, &to, &scale, NULL, NULL) == KILN_OK);
  CHECK(codes[0][1] == -2 && codes[1][2] == 127 && scales[0][0] == 1 && scales[0][1] == 2);
  memset(codes, 0, sizeof codes);
  options.group = &row;
  CHECK(kiln_plan_quantize(&from, &to, &scale, &options, &plan) == KILN_OK);
  pointers[0] = x, pointers[1] = codes, pointers[2] = scales;
  CHECK(kiln_plan_launch(plan, pointers, 3, NULL, NULL) == KILN_OK);
  CHECK(codes[1][3] == -127 && codes[1][4] == 1);
  kiln_plan_destroy(plan);
  options.group = &four, options.scale_power_of_two = 1, scale = tensor(scales, KILN_F32, 2, 2, 2);
  CHECK(kiln_quantize(&from, &to, &scale, &options, NULL) == KILN_OK);
  CHECK(scales[1][0] == 2 && scales[1][1] == 0.03125f && codes[1][4] == 64);
  {
    static uint8_t bytes[2][2];
    const kiln_tensor of_bytes = tensor(bytes, KILN_F8_E8M0, 2, 2, 2);
    CHECK(kiln_quantize(&from, &to, &of_bytes, &options, NULL) == KILN_OK);
    CHECK(bytes[1][0] == 128 && bytes[1][1] == 122); /* 2^1 and 2^-5 */
  }
  options.activation = KILN_RELU;
  CHECK(kiln_quantize(&from, &to, &scale, &options, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "quantize: activation"));
}

static void test_experts(void) {
  static float logits[kTokens][kExperts] = {{0, 3, 1, 2}, {5, 0, 0, 4}, {0, 0, 9, 9}};
  static float x[kTokens][kColumns], rows[kTokens * kTopK][kColumns], out[kTokens][kColumns];
  static float weights[kTokens][kTopK];
  static int32_t experts[kTokens][kTopK], offsets[kExperts], inverse[kTokens][kTopK];
  static const int32_t chosen[kTokens][kTopK] = {{1, 3}, {0, 3}, {2, 3}};
  static const int32_t ends[kExperts] = {1, 2, 3, 6};
  static const int32_t places[kTokens][kTopK] = {{1, 3}, {0, 4}, {2, 5}};
  const kiln_tensor scores = tensor(logits, KILN_F32, 2, kTokens, kExperts);
  const kiln_tensor weight = tensor(weights, KILN_F32, 2, kTokens, kTopK);
  const kiln_tensor numbers = tensor(experts, KILN_I32, 2, kTokens, kTopK);
  const kiln_tensor from = tensor(x, KILN_F32, 2, kTokens, kColumns);
  const kiln_tensor sorted = tensor(rows, KILN_F32, 2, kTokens * kTopK, kColumns);
  const kiln_tensor offset = tensor(offsets, KILN_I32, 1, kExperts, 0);
  const kiln_tensor back = tensor(inverse, KILN_I32, 2, kTokens, kTopK);
  const kiln_tensor sums = tensor(out, KILN_F32, 2, kTokens, kColumns);
  kiln_moe_route_options options = {.struct_size = sizeof options};
  const float two = 2;
  kiln_plan* plan = NULL;
  void* pointers[5];
  int i, j;
  for (i = 0; i < kTokens; ++i)
    for (j = 0; j < kColumns; ++j) x[i][j] = (float)(10 * i + j);
  options.scale = &two;
  CHECK(kiln_moe_route(&scores, &weight, &numbers, &options, NULL) == KILN_OK);
  CHECK(memcmp(experts, chosen, sizeof chosen) == 0);
  CHECK(fabs(weights[0][0] - 2 / (1 + exp(-1))) < 1e-5 && weights[2][0] == 1);
  options.scoring = KILN_SCORE_SIGMOID, options.keep_sums = 1, options.scale = NULL;
  CHECK(kiln_plan_moe_route(&scores, &weight, &numbers, &options, &plan) == KILN_OK);
  pointers[0] = logits, pointers[1] = weights, pointers[2] = experts;
  CHECK(kiln_plan_launch(plan, pointers, 3, NULL, NULL) == KILN_OK);
  CHECK(fabs(weights[0][0] - 1 / (1 + exp(-3))) < 1e-5);
  kiln_plan_destroy(plan);
  options.groups = 3;
  CHECK(kiln_moe_route(&scores, &weight, &numbers, &options, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(kiln_moe_permute(&from, &numbers, &sorted, &offset, &back, NULL, NULL, NULL) == KILN_OK);
  CHECK(memcmp(offsets, ends, sizeof ends) == 0 && memcmp(inverse, places, sizeof places) == 0);
  CHECK(rows[0][1] == 11 && rows[4][1] == 11 && rows[5][0] == 20);
  memset(rows, 0xff, sizeof rows);
  CHECK(kiln_plan_moe_permute(&from, &numbers, &sorted, &offset, &back, &plan) == KILN_OK);
  pointers[0] = x, pointers[1] = experts, pointers[2] = rows, pointers[3] = offsets;
  pointers[4] = inverse;
  CHECK(kiln_plan_launch(plan, pointers, 5, NULL, NULL) == KILN_OK);
  CHECK(rows[0][1] == 11 && rows[4][1] == 11 && rows[5][0] == 20);
  kiln_plan_destroy(plan);
  CHECK(kiln_moe_unpermute(&sorted, &back, NULL, &sums, NULL) == KILN_OK);
  CHECK(out[1][3] == 2 * x[1][3] && out[2][7] == 2 * x[2][7]);
  CHECK(kiln_plan_moe_unpermute(&sorted, &back, &weight, &sums, &plan) == KILN_OK);
  pointers[0] = rows, pointers[1] = inverse, pointers[2] = weights, pointers[3] = out;
  CHECK(kiln_plan_launch(plan, pointers, 4, NULL, NULL) == KILN_OK);
  CHECK(fabs(out[2][7] - (weights[2][0] + weights[2][1]) * x[2][7]) < 1e-4);
  kiln_plan_destroy(plan);
}

/* A line that has to change is a break of the ABI, as tests/cpp/c_abi.c explains. */
static void test_structs(void) {
  CHECK(offsetof(kiln_quantize_options, group) == 8);
  CHECK(offsetof(kiln_quantize_options, counts) == 16);
  CHECK(offsetof(kiln_quantize_options, activation) == 24);
  CHECK(offsetof(kiln_quantize_options, scale_power_of_two) == 28);
  CHECK(sizeof(kiln_quantize_options) == 32);
  CHECK(offsetof(kiln_moe_route_options, bias) == 8);
  CHECK(offsetof(kiln_moe_route_options, scale) == 16);
  CHECK(offsetof(kiln_moe_route_options, scoring) == 24);
  CHECK(offsetof(kiln_moe_route_options, keep_sums) == 28);
  CHECK(offsetof(kiln_moe_route_options, groups) == 32);
  CHECK(offsetof(kiln_moe_route_options, top_groups) == 36);
  CHECK(sizeof(kiln_moe_route_options) == 40);
}

int main(void) {
  CHECK(kiln_set_device("emulator") == KILN_OK);
  test_structs();
  test_quantising();
  test_experts();
  if (failures == 0) printf("ok\n");
  return failures != 0;
}
