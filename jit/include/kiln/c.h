/* Kiln for C and for every language that can call C: the operations of kiln/kiln.h with a stable
 * ABI.
 *
 * Link libkiln (`pkg-config --cflags --libs kiln`, or CMake's kiln::kiln). A call in full:
 *
 *   const int64_t shape[4] = {1, 256, 8, 64};
 *   kiln_tensor q = kiln_contiguous(memory, KILN_BF16, KILN_CUDA, 0, 4, shape);
 *   kiln_attention_options options = {.struct_size = sizeof options, .causal = 1};
 *   if (kiln_flash_attention(&q, &q, &q, &out, NULL, &options, stream) != KILN_OK)
 *     fprintf(stderr, "%s\n", kiln_last_error());
 *
 * Zero and NULL mean the default everywhere: only `struct_size` of an options struct must be set,
 * and NULL options mean all defaults. Options that are pointers are read, in host memory, at once.
 *
 * Errors: every function that can fail returns a kiln_status; no exception leaves the library.
 * kiln_last_error() says what was given, what is allowed and what to do.
 *
 * Threads: every function may be called from any thread at any time, and a handle be used by many
 * at once; it must be destroyed only once, after that. Each thread has its own device and error.
 *
 * Ownership: tensors, options, texts and pointer arrays belong to the caller, and Kiln does not
 * keep pointers to them. Handles belong to the caller until their kiln_*_destroy, which ignores
 * NULL. The work that a call enqueues reads and writes the tensors' memory, which must stay valid
 * until the stream has finished it.
 *
 * ABI: if a change would break programs built against this header, kiln_abi_version() changes, and
 * so does the name of the shared library. Otherwise functions and values are only added, structs
 * that start with `struct_size` only grow at the end, and other structs never change.
 */
#ifndef KILN_C_H
#define KILN_C_H

#include <stddef.h>
#include <stdint.h>

#define KILN_ABI_VERSION 1
#define KILN_MAX_RANK 5

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && !defined(KILN_HIDE_API) /* as in kiln/export.h */
#pragma GCC visibility push(default)
#endif

int kiln_abi_version(void);     /* of the library; KILN_ABI_VERSION if it fits this header */
const char* kiln_version(void); /* "0.1.0" */

/* ------------------------------------------------------------------------------------ errors */

typedef enum kiln_status {
  KILN_OK = 0,
  KILN_INVALID_ARGUMENT = 1, /* a value, a shape, a pointer */
  KILN_TYPE_ERROR = 2,       /* a dtype, or a tensor on the wrong kind of device */
  KILN_COMPILE_ERROR = 3,    /* NVRTC was not found, or refused a source: the message has its log */
  KILN_CUDA_ERROR = 4,       /* a call of the driver failed, or no device can be used */
  KILN_COMPILE_DISABLED = 5, /* a kernel was missing while KILN_JIT=off or a stream was capturing */
  KILN_EMULATOR_ERROR = 6,   /* the emulated device refused or trapped a kernel */
  KILN_INTERNAL = 7          /* out of memory, or a fault of Kiln */
} kiln_status;

/* The message of this thread's last call that failed; "" if none has failed. The text stays valid
 * until the thread's next call that fails. */
const char* kiln_last_error(void);

/* ----------------------------------------------------------------------------------- tensors */

typedef enum kiln_dtype {
  KILN_NONE = 0,
  KILN_F16 = 1,
  KILN_BF16 = 2,
  KILN_F32 = 3,
  KILN_F64 = 4, /* no operation takes f64 today */
  KILN_I32 = 5,
  KILN_I64 = 6,
  KILN_U8 = 7,
  KILN_BOOL = 8,    /* one byte, 0 or 1 */
  KILN_F8_E4M3 = 9, /* no infinity, one NaN of each sign ("e4m3fn") */
  KILN_F8_E5M2 = 10,
  KILN_I8 = 11,
  KILN_F8_E8M0 = 13 /* 2^(byte - 127), 255 is NaN: scales alone ("e8m0fnu") */
} kiln_dtype;

/* Tensors in host memory are computed in place on the emulated device; see kiln_set_device. */
typedef enum kiln_device_type { KILN_CPU = 0, KILN_CUDA = 1 } kiln_device_type;

/* A view of the caller's memory. Shapes and strides count elements. */
typedef struct kiln_tensor {
  void* data;
  int32_t dtype;          /* kiln_dtype */
  int32_t device_type;    /* kiln_device_type */
  int32_t device_ordinal; /* of KILN_CUDA; ignored for KILN_CPU */
  int32_t rank;           /* 0 to KILN_MAX_RANK */
  int64_t shape[KILN_MAX_RANK];
  int64_t strides[KILN_MAX_RANK];
} kiln_tensor;

/* A contiguous view in row-major order. If `rank` is above KILN_MAX_RANK, only that many sizes are
 * read, and calls refuse the tensor. */
static inline kiln_tensor kiln_contiguous(void* data, kiln_dtype dtype,
                                          kiln_device_type device_type, int device_ordinal,
                                          int rank, const int64_t* shape) {
  kiln_tensor tensor;
  int64_t stride = 1;
  int i;
  tensor.data = data;
  tensor.dtype = (int32_t)dtype;
  tensor.device_type = (int32_t)device_type;
  tensor.device_ordinal = (int32_t)device_ordinal;
  tensor.rank = (int32_t)rank;
  for (i = KILN_MAX_RANK - 1; i >= 0; --i) {
    tensor.shape[i] = i < rank ? shape[i] : 0;
    tensor.strides[i] = i < rank ? stride : 0;
    if (i < rank) stride *= shape[i];
  }
  return tensor;
}

/* ------------------------------------------------------------------------------------ device */

/* Sets the device of this thread's calls on host memory: "auto", "cuda", "cuda:1", "emulator" or
 * "emulator:sm_90a,late,seed=3". Tensors in a GPU's memory always go to their own device. The
 * process starts with the device in KILN_DEVICE (docs/env.md) or else with "auto": the emulated
 * device if there is no CUDA driver, and otherwise such calls are refused. */
kiln_status kiln_set_device(const char* choice);
/* This thread's choice, valid until its next kiln_set_device. NULL if KILN_DEVICE is malformed;
 * kiln_last_error() then says how. */
const char* kiln_device(void);

/* Allocates memory that some calls need besides their tensors, on the same device: `bytes`, aligned
 * to 16, not necessarily zeroed, valid until the call's work on its stream is done. It is called at
 * most once in a call. Without it such calls run unsplit and are several times slower, and norms of
 * very wide rows are refused: of more than 16384 accesses of 16 bytes or less, 4096 before sm_90.
 */
typedef void* (*kiln_allocate)(void* context, size_t bytes);

/* -------------------------------------------------------------------------------- attention */

typedef struct kiln_bound_variant kiln_bound_variant; /* see variants, below */

typedef enum kiln_attention_layout { KILN_BSHD = 0, KILN_BHSD = 1 } kiln_attention_layout;

typedef struct kiln_attention_options {
  size_t struct_size;       /* sizeof(kiln_attention_options) */
  int32_t causal;           /* 1: query i sees keys up to i + len_kv - len_q */
  int32_t layout;           /* kiln_attention_layout */
  const int64_t* window;    /* two numbers: the keys visible before and after the diagonal one, both
                               inclusive, -1 = open; NULL = all */
  const float* scale;       /* NULL = 1 / sqrt(head_dim) */
  const kiln_tensor* sinks; /* [heads], f32, f16 or bf16: one more logit in the denominator */
  const kiln_tensor* alibi_slopes; /* [heads] or [batch, heads], f32: logit -= slope * |q - kv| */
  const kiln_tensor* attn_mask; /* [batch or 1, heads or 1, len_q or 1, len_kv or 1], any strides:
                                   KILN_BOOL (1 = visible), or f32 or q's dtype, added */
  const kiln_bound_variant* variant;
  kiln_allocate allocate;
  void* allocate_context;
  float softcap;    /* 0 = none; else cap * tanh(logit / cap) after the scale; at most 1000 */
  int32_t top_left; /* 1, with causal: query i sees keys up to i instead; not with a window */
} kiln_attention_options;

/* out = softmax(scale * q k^T, options) v.
 *   q [batch, len_q, heads, head_dim], k [batch, len_kv, heads_kv, head_dim],
 *   v [batch, len_kv, heads_kv, head_dim_v], out [batch, len_q, heads, head_dim_v]
 * (KILN_BHSD: heads before lengths). All four have the same dtype, f16 or bf16. heads must be a
 * multiple of heads_kv, head dims multiples of 8 up to 256, or 512. The last stride must be 1; the
 * others are free. `lse` may be NULL; it is f32 [batch, heads, len_q] with a last stride of 1, the
 * natural logarithm, without the sink. A row without visible keys gives 0, and -infinity in it.
 *
 * The work is enqueued on `stream` (a CUstream or cudaStream_t; NULL means the default stream), and
 * the call returns without waiting for it. On the emulated device it returns when the work is done.
 * The first call of a kind compiles a kernel or reads it from the cache. */
kiln_status kiln_flash_attention(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                                 const kiln_tensor* out, const kiln_tensor* lse,
                                 const kiln_attention_options* options, void* stream);

typedef struct kiln_sdpa_options {
  size_t struct_size; /* sizeof(kiln_sdpa_options) */
  int32_t is_causal;  /* 1: query i sees keys up to i; not with attn_mask */
  int32_t enable_gqa; /* 1: heads of key and value divide query's, instead of being equal */
  const float* scale; /* NULL = 1 / sqrt(head_dim) */
  kiln_allocate allocate;
  void* allocate_context;
} kiln_sdpa_options;

/* The forward pass of PyTorch's scaled_dot_product_attention, without dropout: tensors of 2 to 5
 * dimensions, [batch.., heads, length, head_dim]; `attn_mask` may be NULL. See kiln/attention.h. */
kiln_status kiln_scaled_dot_product_attention(const kiln_tensor* query, const kiln_tensor* key,
                                              const kiln_tensor* value,
                                              const kiln_tensor* attn_mask, const kiln_tensor* out,
                                              const kiln_sdpa_options* options, void* stream);

/* Attention over sequences of their own lengths. Lengths, offsets and pages are KILN_I32 on the
 * device of q. Only the kernel reads them: a captured call may be replayed with other contents. */
typedef struct kiln_varlen_options {
  size_t struct_size;              /* sizeof(kiln_varlen_options) */
  const kiln_tensor* cu_seqlens_q; /* [batch + 1]: sequence b has queries [b] up to [b + 1] */
  const kiln_tensor* cu_seqlens_k; /* [batch + 1]: likewise of k and v; of a cache, lengths */
  const kiln_tensor* seqused_k;    /* [batch]: how many keys of each are used, with the new ones */
  const kiln_tensor* block_table;  /* [batch, width]: the pages of each sequence's keys, in order */
  int64_t max_seqlen_q, max_seqlen_k; /* bounds, which decide about launches, never about results */
  int64_t num_splits; /* 0; or 1: no result depends on other sequences, on bounds or on padding */
  const kiln_attention_options* attention;       /* without layout, top_left and attn_mask */
  const struct kiln_sequence_options* sequences; /* this one is in kiln/c_serving.h */
  const struct kiln_cache_scales* scales;        /* of a quantised cache: in kiln/c_serving.h */
} kiln_varlen_options;

/* out = softmax(scale * q k^T, options) v, for each of `batch` sequences.
 *   q [tokens, heads, head_dim], out [tokens, heads, head_dim_v], k and v one of
 *     [tokens_k, heads_kv, head_dim]           packed, with cu_seqlens_k
 *     [batch, len, heads_kv, head_dim]         a cache with seqused_k or cu_seqlens_k
 *     [pages, page_size, heads_kv, head_dim]   a cache with block_table, and one of these
 * with a last stride of 1. `lse`, or NULL, is f32 [heads, tokens]. kiln/varlen.h has the rules. */
kiln_status kiln_flash_attention_varlen(const kiln_tensor* q, const kiln_tensor* k,
                                        const kiln_tensor* v, const kiln_tensor* out,
                                        const kiln_tensor* lse, const kiln_varlen_options* options,
                                        void* stream);

typedef struct kiln_kvcache_options {
  size_t struct_size;               /* sizeof(kiln_kvcache_options) */
  const kiln_tensor* cache_seqlens; /* [batch]: how many keys of each sequence are in the cache */
  const kiln_tensor* block_table;   /* this and the next three as in kiln_varlen_options */
  int64_t num_splits;
  const kiln_attention_options* attention;
  const struct kiln_sequence_options* sequences;
  const struct kiln_cache_options* cache; /* new keys, rotation: in kiln/c_serving.h */
  const struct kiln_cache_scales* scales;
} kiln_kvcache_options;

/* The same for sequences of len_q queries each: q [batch, len_q, heads, head_dim], k_cache and
 * v_cache caches as above, out like q with v_cache's head dim, lse [batch, heads, len_q]. */
kiln_status kiln_flash_attention_with_kvcache(const kiln_tensor* q, const kiln_tensor* k_cache,
                                              const kiln_tensor* v_cache, const kiln_tensor* out,
                                              const kiln_tensor* lse,
                                              const kiln_kvcache_options* options, void* stream);

/* ------------------------------------------------------------------------------------- GEMM */

/* The last three are gated. They take two columns of b, apply silu, gelu or gelu_tanh to the first,
 * which is the gate, and multiply the result by the second. gelu and geglu use erf. */
typedef enum kiln_activation {
  KILN_NO_ACTIVATION = 0,
  KILN_RELU = 1,
  KILN_GELU = 2,
  KILN_GELU_TANH = 3,
  KILN_SILU = 4,
  KILN_SWIGLU = 5,
  KILN_GEGLU = 6,
  KILN_GEGLU_TANH = 7
} kiln_activation;

/* A gated activation takes two columns of b, [k, 2 h], for column c of the output: c and h + c (the
 * default), or 2 c and 2 c + 1. */
typedef enum kiln_gate { KILN_DEFAULT_GATE = 0, KILN_HALVES = 1, KILN_INTERLEAVED = 2 } kiln_gate;
typedef enum kiln_accumulator { KILN_ACCUMULATE_F32 = 0, KILN_ACCUMULATE_F16 = 1 } kiln_accumulator;
typedef enum kiln_pdl { KILN_PDL_OFF = 0, KILN_PDL_ON = 1, KILN_PDL_WEIGHTS = 2 } kiln_pdl;

/* A row of the config table, which "kiln inspect gemm" lists, in the place of the chosen one. */
typedef struct kiln_gemm_tile {
  int32_t block_m, block_n, block_k, stages;
  int32_t cluster; /* thread blocks that share operands; 0 = any */
  int32_t splits;  /* thread blocks of a cluster that share K of a tile; 0 = any */
} kiln_gemm_tile;

typedef struct kiln_gemm_options {
  size_t struct_size;          /* sizeof(kiln_gemm_options) */
  int32_t trans_a, trans_b;    /* 1: transposes the last two dimensions */
  const kiln_tensor* bias;     /* [n] or [batch, 1, n] */
  const kiln_tensor* residual; /* like out */
  const kiln_tensor* scale_a;  /* f32, read by the kernel: [] or [1] for all outputs, [m] or [m, 1]
                                  for each row; with a batch also [batch, m] or [batch, m, 1] */
  const kiln_tensor* scale_b;  /* likewise: [] or [1]; [n] or [1, n] for each column */
  const float* alpha;          /* NULL = 1 */
  const char* epilogue;        /* a C++ expression of acc, bias, residual, row, col, batch, m, n: it
                                  replaces bias, activation and residual; NULL or "" = none */
  const kiln_gemm_tile* config; /* NULL = chosen */
  int32_t activation, gate;     /* kiln_activation, kiln_gate */
  int32_t accumulator;          /* kiln_accumulator */
  int32_t allow_tf32;           /* 1: required for f32 inputs */
  int32_t fast; /* 1: f8 sums over all of K stay in the tensor cores, which have about 14 bits */
  int32_t reserved; /* 0 */
  kiln_allocate allocate;
  void* allocate_context;
  const struct kiln_bound_epilogue* bound_epilogue; /* with run-time values: kiln/c_epilogue.h */
  int32_t pdl, reserved_last;                       /* kiln_pdl, which kiln/gemm.h describes; 0 */
  /* Rows in groups, i32 [groups] in device memory, at most one of the two: where the rows of each
     group end in a, or how many of a[group] each has. b is [groups, k, n]: see kiln/gemm.h. */
  const kiln_tensor* offsets;
  const kiln_tensor* counts;
  int64_t expected_rows; /* of a group, a hint; 0 = unknown */
} kiln_gemm_options;

/* out = cast(activation(alpha * a b * scale_a * scale_b + bias) + residual); a [m, k] or
 * [batch, m, k], b [k, n] or [batch, k, n], out [m, n] or [batch, m, n]. A batch of 1 or a missing
 * one is broadcast. a and b have the same dtype, f16, bf16 or f32 (computed as tf32); out may have
 * any of the three, or 8 bits. One of the last two strides of a and of b must be 1, and so must the
 * last stride of out and residual. kiln/gemm.h describes gated activations, 8-bit inputs with their
 * scales, and 8-bit outputs. Stream and compiling are as for kiln_flash_attention. */
kiln_status kiln_gemm(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out,
                      const kiln_gemm_options* options, void* stream);

/* ------------------------------------------------------------------------------------- norms */

typedef struct kiln_norm_options {
  size_t struct_size;              /* sizeof(kiln_norm_options) */
  const float* eps;                /* NULL = 1e-6 for kiln_rms_norm, 1e-5 for kiln_layer_norm */
  const kiln_tensor* residual;     /* like x, added to it in f32 */
  const kiln_tensor* residual_out; /* like x, written with the sum; may be residual's memory */
  float weight_offset;             /* added to each weight: 1 for models with weights around 0 */
  int32_t activation;              /* kiln_activation; it must not be a gated one */
  kiln_allocate allocate;
  void* allocate_context;
} kiln_norm_options;

/* With s = x + residual, over the last dimension, computed in f32 and rounded once:
 *   kiln_rms_norm     activation(s * rsqrt(mean(s^2) + eps) * (weight + weight_offset))
 *   kiln_layer_norm   activation((s - mean(s)) * rsqrt(var(s) + eps) * (weight + weight_offset) +
 * bias)
 * x is [.., columns], f16, bf16 or f32, with 1 to 65536 columns and a last stride of 1; out has x's
 * shape and any of the three dtypes; weight and bias are [columns] with any of them, or NULL, and
 * then nothing is multiplied or added, weight_offset neither. out may be the same memory as x or
 * residual. The other rules are in kiln/norm.h. Stream and compiling are as for
 * kiln_flash_attention. */
kiln_status kiln_rms_norm(const kiln_tensor* x, const kiln_tensor* weight, const kiln_tensor* out,
                          const kiln_norm_options* options, void* stream);
kiln_status kiln_layer_norm(const kiln_tensor* x, const kiln_tensor* weight,
                            const kiln_tensor* bias, const kiln_tensor* out,
                            const kiln_norm_options* options, void* stream);

/* ------------------------------------------------------------------------------------- plans */

/* A prepared call: its arguments are checked and its kernel is loaded, so that a launch needs no
 * lookup and may be captured in a CUDA graph. The tensors' data may be NULL while planning.
 * `allocate` of the options is not used, because the workspace is an argument of the launch. */
typedef struct kiln_plan kiln_plan;

/* `*plan` is NULL unless the result is KILN_OK. */
kiln_status kiln_plan_flash_attention(const kiln_tensor* q, const kiln_tensor* k,
                                      const kiln_tensor* v, const kiln_tensor* out,
                                      const kiln_tensor* lse, const kiln_attention_options* options,
                                      kiln_plan** plan);
kiln_status kiln_plan_flash_attention_varlen(const kiln_tensor* q, const kiln_tensor* k,
                                             const kiln_tensor* v, const kiln_tensor* out,
                                             const kiln_tensor* lse,
                                             const kiln_varlen_options* options, kiln_plan** plan);
kiln_status kiln_plan_flash_attention_with_kvcache(const kiln_tensor* q, const kiln_tensor* k_cache,
                                                   const kiln_tensor* v_cache,
                                                   const kiln_tensor* out, const kiln_tensor* lse,
                                                   const kiln_kvcache_options* options,
                                                   kiln_plan** plan);
kiln_status kiln_plan_gemm(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out,
                           const kiln_gemm_options* options, kiln_plan** plan);
kiln_status kiln_plan_rms_norm(const kiln_tensor* x, const kiln_tensor* weight,
                               const kiln_tensor* out, const kiln_norm_options* options,
                               kiln_plan** plan);
kiln_status kiln_plan_layer_norm(const kiln_tensor* x, const kiln_tensor* weight,
                                 const kiln_tensor* bias, const kiln_tensor* out,
                                 const kiln_norm_options* options, kiln_plan** plan);

/* How much device memory a launch needs besides its tensors. It must be aligned to 16 bytes and
 * need not be zeroed. Launches that may overlap need one workspace each. 0 for a NULL plan. */
size_t kiln_plan_workspace_bytes(const kiln_plan* plan);

/* `pointers` has `count` pointers, of those tensors that the plan function got, in this order:
 * - for attention: q, k, v, out, lse, alibi_slopes, attn_mask, sinks, then the variant's tensors
 * - for attention with lengths: q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, seqused_k or
 *   cache_seqlens, block_table, alibi_slopes, sinks, then the variant's tensors
 * - for gemm: a, b, out, bias, residual, scale_a, scale_b, offsets or counts, then the epilogue's
 *   tensors
 * - for norms: x, weight, bias, out, residual, residual_out; for others, see kiln/c_serving.h
 * Shapes and strides are the planned ones. A pointer must be a multiple of 16 bytes if the planned
 * kernel relies on it, and otherwise of its element's size; the plan functions in the C++ header of
 * the operation say when. `workspace` may be NULL if kiln_plan_workspace_bytes is 0. */
kiln_status kiln_plan_launch(const kiln_plan* plan, void* const* pointers, size_t count,
                             void* stream, void* workspace);
void kiln_plan_destroy(kiln_plan* plan);

#if defined(__GNUC__) && !defined(KILN_HIDE_API)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#include "kiln/c_variant.h"

#endif
