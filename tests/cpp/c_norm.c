/* The norms of kiln/c.h from C, on the emulated device, against plain loops: options, one launch
 * and two, plans, errors. */
#include <kiln/c.h>
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

enum { kRows = 3, kColumns = 260, kWide = 65536 };
static float x_data[kRows * kColumns], residual_data[kRows * kColumns], weights[kColumns],
    biases[kColumns], out_data[kRows * kColumns], sums[kRows * kColumns];

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
static kiln_tensor matrix(float* data, int64_t rows, int64_t columns) {
  int64_t shape[2];
  shape[0] = rows, shape[1] = columns;
  return kiln_contiguous(data, KILN_F32, KILN_CPU, 0, 2, shape);
}
static kiln_tensor vector(float* data, int64_t columns) {
  return kiln_contiguous(data, KILN_F32, KILN_CPU, 0, 1, &columns);
}

/* Whether out and, unless null, residual_out are those of s = x + residual. */
static int is_right(int layer, float eps, float offset, const float* residual, const float* bias,
                    const float* residual_out) {
  int row, i;
  for (row = 0; row < kRows; ++row) {
    double s[kColumns], mean = 0, squares = 0;
    for (i = 0; i < kColumns; ++i) {
      s[i] = (double)x_data[row * kColumns + i] + (residual ? residual[row * kColumns + i] : 0);
      mean += layer ? s[i] / kColumns : 0;
      if (residual_out && residual_out[row * kColumns + i] != (float)s[i]) return 0;
    }
    for (i = 0; i < kColumns; ++i) squares += (s[i] - mean) * (s[i] - mean);
    for (i = 0; i < kColumns; ++i) {
      double y = (s[i] - mean) / sqrt(squares / kColumns + eps) * (weights[i] + offset);
      y += bias ? bias[i] : 0;
      if (!(fabs(out_data[row * kColumns + i] - y) <= 1e-5)) return 0;
    }
  }
  return 1;
}

static void test_norms(void) {
  const kiln_tensor x = matrix(x_data, kRows, kColumns), out = matrix(out_data, kRows, kColumns);
  const kiln_tensor weight = vector(weights, kColumns), bias = vector(biases, kColumns);
  const kiln_tensor residual = matrix(residual_data, kRows, kColumns);
  const kiln_tensor sum = matrix(sums, kRows, kColumns);
  const float eps = 0.125f;
  kiln_norm_options options = {.struct_size = sizeof options};
  memset(out_data, 0xff, sizeof out_data);
  CHECK(kiln_rms_norm(&x, &weight, &out, NULL, NULL) == KILN_OK);
  CHECK(is_right(0, 1e-6f, 0, NULL, NULL, NULL));
  memset(out_data, 0xff, sizeof out_data);
  CHECK(kiln_layer_norm(&x, &weight, &bias, &out, &options, NULL) == KILN_OK);
  CHECK(is_right(1, 1e-5f, 0, NULL, biases, NULL));
  options.eps = &eps, options.weight_offset = 1.0f;
  options.residual = &residual, options.residual_out = &sum;
  memset(out_data, 0xff, sizeof out_data);
  CHECK(kiln_layer_norm(&x, &weight, NULL, &out, &options, NULL) == KILN_OK);
  CHECK(is_right(1, eps, 1, residual_data, NULL, sums));
  options.activation = KILN_RELU;
  CHECK(kiln_rms_norm(&x, &weight, &out, &options, NULL) == KILN_OK);
  {
    int i, negative = 0;
    for (i = 0; i < kRows * kColumns; ++i) negative += out_data[i] < 0;
    CHECK(negative == 0);
  }
}

static void test_plan(void) {
  const kiln_tensor x = matrix(NULL, kRows, kColumns), out = matrix(NULL, kRows, kColumns);
  const kiln_tensor weight = vector(NULL, kColumns), bias = vector(NULL, kColumns);
  void* pointers[4];
  kiln_plan* plan = NULL;
  pointers[0] = x_data, pointers[1] = weights, pointers[2] = out_data;
  CHECK(kiln_plan_rms_norm(&x, &weight, &out, NULL, &plan) == KILN_OK);
  CHECK(kiln_plan_workspace_bytes(plan) == 0);
  memset(out_data, 0xff, sizeof out_data);
  CHECK(kiln_plan_launch(plan, pointers, 3, NULL, NULL) == KILN_OK);
  CHECK(is_right(0, 1e-6f, 0, NULL, NULL, NULL));
  kiln_plan_destroy(plan);
  CHECK(kiln_plan_layer_norm(&x, &weight, &bias, &out, NULL, &plan) == KILN_OK);
  pointers[2] = biases, pointers[3] = out_data;
  CHECK(kiln_plan_launch(plan, pointers, 4, NULL, NULL) == KILN_OK);
  CHECK(is_right(1, 1e-5f, 0, NULL, biases, NULL));
  CHECK(kiln_plan_launch(plan, pointers, 3, NULL, NULL) == KILN_INVALID_ARGUMENT);
  kiln_plan_destroy(plan);
}

static size_t asked;
static void* allocate(void* memory, size_t bytes) {
  asked = bytes;
  return memory;
}

/* One very wide row, whose launches share a workspace of the caller's. */
static void test_two_launches(void) {
  float *const data = malloc(kWide * sizeof *data), *const result = malloc(kWide * sizeof *data);
  void* const workspace = malloc(1 << 16);
  const kiln_tensor x = matrix(data, 1, kWide), out = matrix(result, 1, kWide);
  kiln_norm_options options = {.struct_size = sizeof options};
  double squares = 0;
  int i, wrong = 0;
  fill(data, kWide);
  options.allocate = allocate, options.allocate_context = workspace;
  CHECK(kiln_rms_norm(&x, NULL, &out, &options, NULL) == KILN_OK);
  CHECK(asked > 0 && asked <= 1 << 16);
  for (i = 0; i < kWide; ++i) squares += (double)data[i] * data[i];
  for (i = 0; i < kWide; ++i) {
    wrong += !(fabs(result[i] - data[i] / sqrt(squares / kWide + 1e-6)) <= 1e-5);
  }
  CHECK(wrong == 0);
  /* Without one sm_80, which has no clusters, cannot compute it. */
  CHECK(kiln_rms_norm(&x, NULL, &out, NULL, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "give options.workspace") != NULL);
  free(data), free(result), free(workspace);
}

static void test_errors(void) {
  const kiln_tensor x = matrix(x_data, kRows, kColumns), out = matrix(out_data, kRows, kColumns);
  const kiln_tensor few = vector(weights, kColumns - 1);
  kiln_norm_options options = {.struct_size = sizeof options};
  CHECK(kiln_rms_norm(NULL, NULL, &out, NULL, NULL) != KILN_OK);
  CHECK(kiln_rms_norm(&x, &few, &out, NULL, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "rms_norm: weight must have shape [260], got [259]") != NULL);
  CHECK(kiln_layer_norm(&x, NULL, &few, &out, NULL, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "layer_norm: bias must have shape [260]") != NULL);
  options.activation = KILN_SWIGLU;
  CHECK(kiln_rms_norm(&x, NULL, &out, &options, NULL) == KILN_INVALID_ARGUMENT);
  options.activation = 0, options.struct_size = 0;
  CHECK(kiln_rms_norm(&x, NULL, &out, &options, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "struct_size") != NULL);
}

int main(void) {
  CHECK(kiln_set_device("emulator:sm_80") == KILN_OK);
  fill(x_data, kRows * kColumns), fill(residual_data, kRows * kColumns);
  fill(weights, kColumns), fill(biases, kColumns);
  test_norms();
  test_plan();
  test_two_launches();
  test_errors();
  if (failures == 0) printf("norms from C: ok\n");
  return failures != 0;
}
