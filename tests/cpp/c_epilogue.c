/* The epilogues of kiln/c_epilogue.h from C, on the emulated device, against plain loops: a call, a
 * plan with other tensors, errors. */
#include <kiln/c_epilogue.h>
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

enum { kM = 20, kN = 24, kK = 16 };
static float a_data[kM * kK], b_data[kK * kN], s_data[kN], other_data[kN], out_data[kM * kN];

static kiln_tensor matrix(float* data, int64_t rows, int64_t columns) {
  int64_t shape[2];
  shape[0] = rows, shape[1] = columns;
  return kiln_contiguous(data, KILN_F32, KILN_CPU, 0, 2, shape);
}

/* Small whole numbers, which tf32 holds exactly. */
static void fill(float* data, size_t count, int step) {
  size_t i;
  for (i = 0; i < count; ++i) data[i] = (float)((int)(i * (size_t)step % 7) - 3);
}

/* Whether out = a b * s[col] + t, and clears it. */
static int is_right(const float* s, float t) {
  int row, col, k, right = 1;
  for (row = 0; row < kM; ++row) {
    for (col = 0; col < kN; ++col) {
      float sum = 0;
      for (k = 0; k < kK; ++k) sum += a_data[row * kK + k] * b_data[k * kN + col];
      if (out_data[row * kN + col] != sum * s[col] + t) right = 0;
      out_data[row * kN + col] = NAN;
    }
  }
  return right;
}

int main(void) {
  const int64_t columns = kN;
  const double values[1] = {1.5};
  kiln_epilogue_definition definition = {.struct_size = sizeof definition,
                                         .name = "scaled",
                                         .params = "t: f32",
                                         .tensors = "s: f32[n]",
                                         .value = "acc * s[col] + t"};
  kiln_gemm_options options = {.struct_size = sizeof options, .allow_tf32 = 1};
  kiln_tensor a, b, out, s;
  kiln_epilogue* epilogue = NULL;
  kiln_bound_epilogue* bound = NULL;
  kiln_plan* plan = NULL;
  CHECK(kiln_set_device("emulator:sm_90a") == KILN_OK);
  fill(a_data, kM * kK, 3), fill(b_data, kK * kN, 5), fill(s_data, kN, 2), fill(other_data, kN, 4);
  a = matrix(a_data, kM, kK), b = matrix(b_data, kK, kN), out = matrix(out_data, kM, kN);
  s = kiln_contiguous(s_data, KILN_F32, KILN_CPU, 0, 1, &columns);

  CHECK(kiln_epilogue_create(&definition, &epilogue) == KILN_OK);
  CHECK(kiln_epilogue_bind(epilogue, values, 1, NULL, 0, &bound) == KILN_INVALID_ARGUMENT);
  CHECK(bound == NULL && strstr(kiln_last_error(), "takes 1 parameters and 1 tensors") != NULL);
  CHECK(kiln_epilogue_bind(epilogue, values, 1, &s, 1, &bound) == KILN_OK);
  kiln_epilogue_destroy(epilogue);
  options.bound_epilogue = bound;
  CHECK(kiln_gemm(&a, &b, &out, &options, NULL) == KILN_OK);
  CHECK(is_right(s_data, 1.5f));

  CHECK(kiln_plan_gemm(&a, &b, &out, &options, &plan) == KILN_OK);
  {
    void* const pointers[4] = {a_data, b_data, out_data, other_data};
    CHECK(kiln_plan_workspace_bytes(plan) == 0);
    CHECK(kiln_plan_launch(plan, pointers, 4, NULL, NULL) == KILN_OK);
  }
  CHECK(is_right(other_data, 1.5f));
  kiln_plan_destroy(plan);

  options.epilogue = "acc";
  CHECK(kiln_gemm(&a, &b, &out, &options, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "beside bound_epilogue") != NULL);
  kiln_bound_epilogue_destroy(bound);
  definition.tensors = "s f32[n]";
  CHECK(kiln_epilogue_create(&definition, &epilogue) == KILN_INVALID_ARGUMENT);
  CHECK(epilogue == NULL && strstr(kiln_last_error(), "got 's f32[n]'") != NULL);
  CHECK(kiln_epilogue_create(NULL, &epilogue) == KILN_INVALID_ARGUMENT);
  if (failures == 0) printf("epilogues from C are right\n");
  return failures != 0;
}
