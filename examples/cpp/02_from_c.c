// A GEMM with a fused epilogue from C: out = relu(0.5 * a b + bias), called, then planned.
#include <kiln/c.h>
#include <stdio.h>

#include "memory.h"

enum { kM = 64, kN = 48, kK = 32 };

// Small whole numbers, which tf32 holds exactly.
static kiln_tensor tensor(int rank, int64_t rows, int64_t columns, int step) {
  const int64_t shape[2] = {rows, columns};
  float* const data = allocate(rows * columns * sizeof(float));
  for (int64_t i = 0; i < rows * columns; ++i) data[i] = (float)(i * step % 7 - 3);
  return kiln_contiguous(data, KILN_F32, on_gpu() ? KILN_CUDA : KILN_CPU, 0, rank, shape);
}

static int count_wrong(const float* a, const float* b, const float* bias, const float* out) {
  int wrong = 0;
  for (int i = 0; i < kM * kN; ++i) {
    float sum = bias[i % kN];
    for (int l = 0; l < kK; ++l) sum += 0.5f * a[i / kN * kK + l] * b[l * kN + i % kN];
    wrong += out[i] != (sum > 0 ? sum : 0);
  }
  return wrong;
}

static int failed(kiln_status status) {
  if (status != KILN_OK) fprintf(stderr, "%s\n", kiln_last_error());
  return status != KILN_OK;
}

int main(void) {
  if (!on_gpu() && failed(kiln_set_device("emulator"))) return 1;
  const kiln_tensor a = tensor(2, kM, kK, 3), b = tensor(2, kK, kN, 5), bias = tensor(1, kN, 1, 2);
  const kiln_tensor out = tensor(2, kM, kN, 1), again = tensor(2, kM, kN, 1);
  const float alpha = 0.5f;
  const kiln_gemm_options options = {.struct_size = sizeof options,
                                     .bias = &bias,
                                     .alpha = &alpha,
                                     .activation = KILN_RELU,
                                     .allow_tf32 = 1};
  if (failed(kiln_gemm(&a, &b, &out, &options, NULL))) return 1;

  kiln_plan* plan;
  if (failed(kiln_plan_gemm(&a, &b, &out, &options, &plan))) return 1;
  void* const pointers[] = {a.data, b.data, again.data, bias.data};
  void* const workspace = allocate(kiln_plan_workspace_bytes(plan));
  if (failed(kiln_plan_launch(plan, pointers, 4, NULL, workspace)) || !finish()) return 1;
  kiln_plan_destroy(plan);

  const int wrong = count_wrong(a.data, b.data, bias.data, out.data) +
                    count_wrong(a.data, b.data, bias.data, again.data);
  printf("kiln %s: %d wrong numbers: %s\n", kiln_version(), wrong, wrong == 0 ? "ok" : "WRONG");
  return wrong != 0;
}
