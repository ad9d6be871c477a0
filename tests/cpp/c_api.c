/* kiln/c.h from C: attention and GEMM on the emulated device against plain loops, plans, variants,
 * errors, and callers that are older or newer than the library. */
#include <kiln/c.h>
#include <math.h>
#include <pthread.h>
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
static uint16_t to_bf16(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/* Numbers in [-1, 1), the same in every run. */
static float next_number(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (float)(1 << 23) - 1.0f;
}
static void* numbers(size_t count) {
  uint16_t* const data = malloc(count * sizeof *data);
  size_t i;
  for (i = 0; i < count; ++i) data[i] = to_bf16(next_number());
  return data;
}

static kiln_tensor tensor(void* data, kiln_dtype dtype, int rank, int64_t n0, int64_t n1,
                          int64_t n2, int64_t n3) {
  int64_t shape[4];
  shape[0] = n0, shape[1] = n1, shape[2] = n2, shape[3] = n3;
  return kiln_contiguous(data, dtype, KILN_CPU, 0, rank, shape);
}

/* ------------------------------------------------------------------------------- attention */

enum { kLength = 70, kHeads = 2, kDim = 32 };
static kiln_tensor q, k, v, out, lse;
static float expected[kLength * kHeads * kDim], expected_lse[kHeads * kLength];

static float at(const kiln_tensor* x, int row, int head, int i) {
  const uint16_t* const data = x->data;
  return from_bf16(data[row * x->strides[1] + head * x->strides[2] + i]);
}

static float logit_of(int row, int key, int head, float cap) {
  float sum = 0;
  int i;
  for (i = 0; i < kDim; ++i) sum += at(&q, row, head, i) * at(&k, key, 0, i);
  sum /= sqrtf((float)kDim);
  return cap == 0 ? sum : cap * tanhf(sum / cap);
}

/* The textbook: causal, two query heads on one KV head. */
static void attend(float cap) {
  int row, head, key, i;
  for (row = 0; row < kLength; ++row) {
    for (head = 0; head < kHeads; ++head) {
      float* const result = expected + (row * kHeads + head) * kDim;
      double sum = 0;
      for (i = 0; i < kDim; ++i) result[i] = 0;
      for (key = 0; key <= row; ++key) sum += exp(logit_of(row, key, head, cap));
      for (key = 0; key <= row; ++key) {
        const float weight = (float)(exp(logit_of(row, key, head, cap)) / sum);
        for (i = 0; i < kDim; ++i) result[i] += weight * at(&v, key, 0, i);
      }
      expected_lse[head * kLength + row] = (float)log(sum);
    }
  }
}

static int attention_is_right(const void* result) {
  const uint16_t* const data = result;
  double worst = 0;
  int i;
  for (i = 0; i < kLength * kHeads * kDim; ++i) {
    const double error = fabs((double)from_bf16(data[i]) - expected[i]);
    if (!(error <= worst)) worst = error; /* a NaN too */
  }
  return worst < 0.01;
}

static void test_attention(void) {
  kiln_attention_options options = {.struct_size = sizeof options, .causal = 1};
  const float scale = 1 / sqrtf((float)kDim);
  float worst = 0;
  int i;
  attend(0);
  CHECK(kiln_flash_attention(&q, &k, &v, &out, &lse, &options, NULL) == KILN_OK);
  CHECK(attention_is_right(out.data));
  for (i = 0; i < kHeads * kLength; ++i) {
    worst = fmaxf(worst, fabsf(((float*)lse.data)[i] - expected_lse[i]));
  }
  CHECK(worst < 0.01f);
  /* The same said otherwise: a window that is closed after the diagonal, and the scale. */
  const int64_t window[2] = {-1, 0};
  options.causal = 0;
  options.window = window;
  options.scale = &scale;
  memset(out.data, 0xff, kLength * kHeads * kDim * 2);
  CHECK(kiln_flash_attention(&q, &k, &v, &out, NULL, &options, NULL) == KILN_OK);
  CHECK(attention_is_right(out.data));
}

/* x with its heads before its length. */
static kiln_tensor heads_first(kiln_tensor x) {
  const int64_t rows = x.shape[1], row = x.strides[1];
  x.shape[1] = x.shape[2], x.strides[1] = x.strides[2];
  x.shape[2] = rows, x.strides[2] = row;
  return x;
}

static void test_pytorch_s_form(void) {
  static uint8_t visible[kLength * kLength]; /* the causal mask, said as a tensor */
  const kiln_tensor mask = tensor(visible, KILN_BOOL, 2, kLength, kLength, 0, 0);
  const kiln_tensor query = heads_first(q), key = heads_first(k), value = heads_first(v);
  const kiln_tensor result = heads_first(out);
  kiln_sdpa_options options = {.struct_size = sizeof options, .enable_gqa = 1};
  int i;
  for (i = 0; i < kLength * kLength; ++i) visible[i] = i % kLength <= i / kLength;
  attend(0);
  memset(out.data, 0xff, kLength * kHeads * kDim * 2);
  CHECK(kiln_scaled_dot_product_attention(&query, &key, &value, &mask, &result, &options, NULL) ==
        KILN_OK);
  CHECK(attention_is_right(out.data));
  options.is_causal = 1;
  CHECK(kiln_scaled_dot_product_attention(&query, &key, &value, &mask, &result, &options, NULL) ==
        KILN_INVALID_ARGUMENT);
  memset(out.data, 0xff, kLength * kHeads * kDim * 2);
  CHECK(kiln_scaled_dot_product_attention(&query, &key, &value, NULL, &result, &options, NULL) ==
        KILN_OK);
  CHECK(attention_is_right(out.data));
}

static void test_attention_plan(void) {
  const kiln_attention_options options = {.struct_size = sizeof options, .causal = 1};
  kiln_plan* plan = NULL;
  kiln_tensor elsewhere = out;
  void* pointers[4];
  attend(0);
  elsewhere.data = NULL; /* a plan needs no memory */
  CHECK(kiln_plan_flash_attention(&q, &k, &v, &elsewhere, NULL, &options, &plan) == KILN_OK);
  CHECK(kiln_plan_workspace_bytes(plan) == 0);
  pointers[0] = q.data, pointers[1] = k.data, pointers[2] = v.data;
  pointers[3] = calloc(kLength * kHeads * kDim, 2);
  CHECK(kiln_plan_launch(plan, pointers, 4, NULL, NULL) == KILN_OK);
  CHECK(attention_is_right(pointers[3]));
  CHECK(kiln_plan_launch(plan, pointers, 3, NULL, NULL) == KILN_INVALID_ARGUMENT);
  CHECK(strstr(kiln_last_error(), "expected 4 pointers, got 3") != NULL);
  CHECK(kiln_plan_launch(plan, NULL, 4, NULL, NULL) == KILN_INVALID_ARGUMENT);
  free(pointers[3]);
  kiln_plan_destroy(plan);
  kiln_plan_destroy(NULL);
}

static void test_variant(void) {
  const kiln_variant_definition definition = {.struct_size = sizeof definition,
                                              .name = "capped",
                                              .params = " cap: f32 ;reach : i32;",
                                              .tensors = "bias: f32[h, kv]",
                                              .logits = "cap * tanh(logit / cap) + bias",
                                              .mask = "q - kv < reach"};
  const double values[2] = {0.25, 1000};
  float zeros[kHeads * kLength] = {0};
  const kiln_tensor bias = tensor(zeros, KILN_F32, 2, kHeads, kLength, 0, 0);
  kiln_attention_options options = {.struct_size = sizeof options, .causal = 1};
  kiln_variant* variant = NULL;
  kiln_bound_variant* bound = NULL;
  CHECK(kiln_variant_create(&definition, &variant) == KILN_OK);
  CHECK(kiln_variant_bind(variant, values, 1, &bias, 1, &bound) == KILN_INVALID_ARGUMENT);
  CHECK(bound == NULL);
  CHECK(kiln_variant_bind(variant, values, 2, &bias, 1, &bound) == KILN_OK);
  kiln_variant_destroy(variant);
  const kiln_bound_variant* const list[5] = {bound, bound, bound, bound, bound};
  kiln_bound_variant* composed = NULL;
  CHECK(kiln_variant_compose(list, 5, &composed) == KILN_INVALID_ARGUMENT);
  CHECK(kiln_variant_compose(list, 1, &composed) == KILN_OK);
  kiln_bound_variant_destroy(bound);
  bound = composed;
  options.variant = bound;
  attend(0.25f);
  CHECK(kiln_flash_attention(&q, &k, &v, &out, NULL, &options, NULL) == KILN_OK);
  CHECK(attention_is_right(out.data));
  kiln_bound_variant_destroy(bound);

  kiln_variant_definition bad = definition;
  bad.params = "cap f32";
  CHECK(kiln_variant_create(&bad, &variant) == KILN_INVALID_ARGUMENT);
  CHECK(variant == NULL && strstr(kiln_last_error(), "got 'cap f32'") != NULL);
}

/* ------------------------------------------------------------------------------------ GEMM */

enum { kM = 33, kN = 48, kK = 40 };

static void test_gemm(void) {
  kiln_tensor a = tensor(numbers(kM * kK), KILN_BF16, 2, kM, kK, 0, 0);
  kiln_tensor b = tensor(numbers(kN * kK), KILN_BF16, 2, kN, kK, 0, 0); /* transposed */
  kiln_tensor bias = tensor(numbers(kN), KILN_BF16, 1, kN, 0, 0, 0);
  kiln_tensor c = tensor(malloc(kM * kN * 4), KILN_F32, 2, kM, kN, 0, 0);
  const float alpha = 0.5f;
  const kiln_gemm_options options = {.struct_size = sizeof options,
                                     .trans_b = 1,
                                     .bias = &bias,
                                     .alpha = &alpha,
                                     .activation = KILN_SILU};
  const uint16_t *x = a.data, *y = b.data, *z = bias.data;
  float* const result = c.data;
  kiln_plan* plan = NULL;
  double worst = 0;
  int i, j, l, pass;
  CHECK(kiln_plan_gemm(&a, &b, &c, &options, &plan) == KILN_OK);
  for (pass = 0; pass < 2; ++pass) {
    void* pointers[4];
    pointers[0] = a.data, pointers[1] = b.data, pointers[2] = c.data, pointers[3] = bias.data;
    memset(c.data, 0xff, kM * kN * 4);
    CHECK((pass == 0 ? kiln_gemm(&a, &b, &c, &options, NULL)
                     : kiln_plan_launch(plan, pointers, 4, NULL, NULL)) == KILN_OK);
    for (i = 0; i < kM; ++i) {
      for (j = 0; j < kN; ++j) {
        double sum = 0;
        for (l = 0; l < kK; ++l) sum += from_bf16(x[i * kK + l]) * from_bf16(y[j * kK + l]);
        sum = alpha * sum + from_bf16(z[j]);
        sum = fabs(sum / (1 + exp(-sum)) - result[i * kN + j]);
        if (!(sum <= worst)) worst = sum;
      }
    }
    CHECK(worst < 1e-3);
  }
  kiln_plan_destroy(plan);
  free(a.data), free(b.data), free(bias.data), free(c.data);
}

struct arena {
  void* memory;
  size_t bytes;
  int calls;
};
static void* allocate(void* context, size_t bytes) {
  struct arena* const arena = context;
  ++arena->calls;
  arena->bytes = bytes;
  return arena->memory = calloc(1, bytes); /* aligned to 16, as malloc's are */
}

/* One tile and much to add up: several blocks share it. */
static void test_workspace(void) {
  enum { kDeep = 4096 };
  kiln_tensor a = tensor(numbers(16 * kDeep), KILN_BF16, 2, 16, kDeep, 0, 0);
  kiln_tensor b = tensor(numbers(16 * kDeep), KILN_BF16, 2, kDeep, 16, 0, 0);
  kiln_tensor c = tensor(malloc(16 * 16 * 4), KILN_F32, 2, 16, 16, 0, 0);
  float* const whole = malloc(16 * 16 * 4);
  struct arena arena = {NULL, 0, 0};
  kiln_gemm_options options = {.struct_size = sizeof options};
  kiln_plan* plan = NULL;
  double worst = 0;
  int i;
  CHECK(kiln_gemm(&a, &b, &c, NULL, NULL) == KILN_OK);
  memcpy(whole, c.data, 16 * 16 * 4);
  options.allocate = allocate;
  options.allocate_context = &arena;
  CHECK(kiln_gemm(&a, &b, &c, &options, NULL) == KILN_OK);
  CHECK(arena.calls == 1);
  for (i = 0; i < 16 * 16; ++i) {
    const double error = fabs((double)whole[i] - ((float*)c.data)[i]);
    if (!(error <= worst)) worst = error;
  }
  CHECK(worst < 1e-2);
  CHECK(kiln_plan_gemm(&a, &b, &c, NULL, &plan) == KILN_OK);
  CHECK(kiln_plan_workspace_bytes(plan) == arena.bytes);
  kiln_plan_destroy(plan);
  free(arena.memory), free(whole), free(a.data), free(b.data), free(c.data);
}

/* ---------------------------------------------------------------------------------- errors */

static kiln_status attend_with(const kiln_tensor* first, const void* options) {
  return kiln_flash_attention(first, &k, &v, &out, NULL, options, NULL);
}
static int says(const char* text) { return strstr(kiln_last_error(), text) != NULL; }

static void test_errors(void) {
  kiln_tensor bad = q;
  kiln_attention_options options = {.struct_size = sizeof options};
  kiln_plan* plan = (kiln_plan*)&bad;
  CHECK(attend_with(NULL, NULL) == KILN_TYPE_ERROR && says("q is missing"));
  bad.rank = 6;
  CHECK(attend_with(&bad, NULL) == KILN_INVALID_ARGUMENT && says("rank of 0 to 5, got 6"));
  bad = q, bad.dtype = 77;
  CHECK(attend_with(&bad, NULL) == KILN_INVALID_ARGUMENT && says("q.dtype") && says("77"));
  bad = q, bad.dtype = KILN_NONE;
  CHECK(attend_with(&bad, NULL) == KILN_TYPE_ERROR && says("q has no dtype"));
  bad = q, bad.dtype = KILN_F32;
  CHECK(attend_with(&bad, NULL) == KILN_TYPE_ERROR);
  CHECK(kiln_plan_flash_attention(&bad, &k, &v, &out, NULL, NULL, &plan) == KILN_TYPE_ERROR);
  CHECK(plan == NULL);
  CHECK(kiln_plan_gemm(&q, &k, &out, NULL, NULL) == KILN_INVALID_ARGUMENT && says("plan"));
  options.struct_size = 0;
  CHECK(attend_with(&q, &options) == KILN_INVALID_ARGUMENT && says("struct_size must be"));
  options.struct_size = sizeof options;
  options.layout = 2;
  CHECK(attend_with(&q, &options) == KILN_INVALID_ARGUMENT && says("layout"));
  options.layout = 0, options.top_left = 1;
  CHECK(attend_with(&q, &options) == KILN_INVALID_ARGUMENT && says("top_left needs causal"));
  CHECK(kiln_set_device("toaster") == KILN_INVALID_ARGUMENT && says("got 'toaster'"));
  CHECK(strcmp(kiln_device(), "emulator:sm_80") == 0);
}

/* A caller whose header ended behind `layout`, and one whose header has a field more. The memory
 * has exactly their size, for the address sanitizer's sake. */
static void test_other_versions(void) {
  struct {
    kiln_attention_options now;
    uint64_t later;
  } newer = {.now = {.struct_size = sizeof newer, .causal = 1}};
  const size_t bytes = offsetof(kiln_attention_options, window);
  kiln_attention_options* const older = malloc(bytes);
  const kiln_attention_options old = {.struct_size = bytes, .causal = 1};
  memcpy(older, &old, bytes);
  attend(0);
  memset(out.data, 0xff, kLength * kHeads * kDim * 2);
  CHECK(attend_with(&q, older) == KILN_OK);
  CHECK(attention_is_right(out.data));
  free(older);
  memset(out.data, 0xff, kLength * kHeads * kDim * 2);
  CHECK(attend_with(&q, &newer) == KILN_OK);
  CHECK(attention_is_right(out.data));
  newer.later = 1;
  CHECK(attend_with(&q, &newer) == KILN_INVALID_ARGUMENT && says("later libkiln"));
}

static void* in_a_thread(void* argument) {
  int* const faults = argument;
  *faults = kiln_last_error()[0] != '\0'; /* none here yet */
  *faults += attend_with(NULL, NULL) != KILN_TYPE_ERROR;
  *faults += !says("q is missing");
  *faults += strcmp(kiln_device(), "emulator:sm_80") == 0; /* chosen by another thread */
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  int faults[4], i;
  CHECK(kiln_set_device("toaster") == KILN_INVALID_ARGUMENT);
  for (i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, in_a_thread, &faults[i]);
  for (i = 0; i < 4; ++i) {
    pthread_join(threads[i], NULL);
    CHECK(faults[i] == 0);
  }
  CHECK(says("toaster"));
}

int main(void) {
  CHECK(kiln_set_device("emulator:sm_80") == KILN_OK);
  q = tensor(numbers(kLength * kHeads * kDim), KILN_BF16, 4, 1, kLength, kHeads, kDim);
  k = tensor(numbers(kLength * kDim), KILN_BF16, 4, 1, kLength, 1, kDim);
  v = tensor(numbers(kLength * kDim), KILN_BF16, 4, 1, kLength, 1, kDim);
  out = tensor(calloc(kLength * kHeads * kDim, 2), KILN_BF16, 4, 1, kLength, kHeads, kDim);
  lse = tensor(calloc(kHeads * kLength, 4), KILN_F32, 3, 1, kHeads, kLength, 0);
  test_attention();
  test_pytorch_s_form();
  test_attention_plan();
  test_variant();
  test_gemm();
  test_workspace();
  test_errors();
  test_other_versions();
  test_threads();
  free(q.data), free(k.data), free(v.data), free(out.data), free(lse.data);
  if (failures == 0) printf("kiln %s from C: ok\n", kiln_version());
  return failures != 0;
}
