/* The layout of the structs of kiln/c.h and the other headers of C, and the numbers of their
 * enumerations, as ABI 1 was released.
 *
 * A line may be added, for a field at the end of a struct that starts with struct_size. A line that
 * has to change is a break: KILN_ABI_VERSION goes up with it. No field may cross a multiple of 8
 * bytes, and no struct may have a hole: an older caller's struct ends where a later field starts.
 */
#include <kiln/c_epilogue.h>
#include <kiln/c_serving.h>
#include <stdio.h>

#define FIELD(type, field) {#type "." #field, offsetof(type, field), sizeof(((type*)0)->field)}

struct field {
  const char* name;
  size_t offset, bytes;
};

static const struct field kTensor[] = {
    FIELD(kiln_tensor, data),        FIELD(kiln_tensor, dtype),
    FIELD(kiln_tensor, device_type), FIELD(kiln_tensor, device_ordinal),
    FIELD(kiln_tensor, rank),        FIELD(kiln_tensor, shape),
    FIELD(kiln_tensor, strides),     {"end of kiln_tensor", sizeof(kiln_tensor), 0}};
static const size_t kTensorOffsets[] = {0, 8, 12, 16, 20, 24, 64, 104};

static const struct field kAttention[] = {
    FIELD(kiln_attention_options, struct_size),
    FIELD(kiln_attention_options, causal),
    FIELD(kiln_attention_options, layout),
    FIELD(kiln_attention_options, window),
    FIELD(kiln_attention_options, scale),
    FIELD(kiln_attention_options, sinks),
    FIELD(kiln_attention_options, alibi_slopes),
    FIELD(kiln_attention_options, attn_mask),
    FIELD(kiln_attention_options, variant),
    FIELD(kiln_attention_options, allocate),
    FIELD(kiln_attention_options, allocate_context),
    FIELD(kiln_attention_options, softcap),
    FIELD(kiln_attention_options, top_left),
    {"end of kiln_attention_options", sizeof(kiln_attention_options), 0}};
static const size_t kAttentionOffsets[] = {0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 84, 88};

static const struct field kSdpa[] = {FIELD(kiln_sdpa_options, struct_size),
                                     FIELD(kiln_sdpa_options, is_causal),
                                     FIELD(kiln_sdpa_options, enable_gqa),
                                     FIELD(kiln_sdpa_options, scale),
                                     FIELD(kiln_sdpa_options, allocate),
                                     FIELD(kiln_sdpa_options, allocate_context),
                                     {"end of kiln_sdpa_options", sizeof(kiln_sdpa_options), 0}};
static const size_t kSdpaOffsets[] = {0, 8, 12, 16, 24, 32, 40};

static const struct field kVarlen[] = {
    FIELD(kiln_varlen_options, struct_size),
    FIELD(kiln_varlen_options, cu_seqlens_q),
    FIELD(kiln_varlen_options, cu_seqlens_k),
    FIELD(kiln_varlen_options, seqused_k),
    FIELD(kiln_varlen_options, block_table),
    FIELD(kiln_varlen_options, max_seqlen_q),
    FIELD(kiln_varlen_options, max_seqlen_k),
    FIELD(kiln_varlen_options, num_splits),
    FIELD(kiln_varlen_options, attention),
    FIELD(kiln_varlen_options, sequences),
    FIELD(kiln_varlen_options, scales),
    {"end of kiln_varlen_options", sizeof(kiln_varlen_options), 0}};
static const size_t kVarlenOffsets[] = {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88};

static const struct field kKvCache[] = {
    FIELD(kiln_kvcache_options, struct_size),
    FIELD(kiln_kvcache_options, cache_seqlens),
    FIELD(kiln_kvcache_options, block_table),
    FIELD(kiln_kvcache_options, num_splits),
    FIELD(kiln_kvcache_options, attention),
    FIELD(kiln_kvcache_options, sequences),
    FIELD(kiln_kvcache_options, cache),
    FIELD(kiln_kvcache_options, scales),
    {"end of kiln_kvcache_options", sizeof(kiln_kvcache_options), 0}};
static const size_t kKvCacheOffsets[] = {0, 8, 16, 24, 32, 40, 48, 56, 64};

static const struct field kSequences[] = {
    FIELD(kiln_sequence_options, struct_size),
    FIELD(kiln_sequence_options, kv_indptr),
    FIELD(kiln_sequence_options, kv_indices),
    FIELD(kiln_sequence_options, causal_each),
    FIELD(kiln_sequence_options, tree_mask),
    FIELD(kiln_sequence_options, cp_seqused_k_total),
    FIELD(kiln_sequence_options, cp_world),
    FIELD(kiln_sequence_options, cp_rank),
    FIELD(kiln_sequence_options, cp_interleave),
    FIELD(kiln_sequence_options, plan),
    {"end of kiln_sequence_options", sizeof(kiln_sequence_options), 0}};
static const size_t kSequencesOffsets[] = {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80};

static const struct field kCache[] = {FIELD(kiln_cache_options, struct_size),
                                      FIELD(kiln_cache_options, cache_batch_idx),
                                      FIELD(kiln_cache_options, cache_leftpad),
                                      FIELD(kiln_cache_options, k_new),
                                      FIELD(kiln_cache_options, v_new),
                                      FIELD(kiln_cache_options, rotary_cos),
                                      FIELD(kiln_cache_options, rotary_sin),
                                      FIELD(kiln_cache_options, rotary_halves),
                                      FIELD(kiln_cache_options, reserved),
                                      {"end of kiln_cache_options", sizeof(kiln_cache_options), 0}};
static const size_t kCacheOffsets[] = {0, 8, 16, 24, 32, 40, 48, 56, 60, 64};

static const struct field kGemm[] = {FIELD(kiln_gemm_options, struct_size),
                                     FIELD(kiln_gemm_options, trans_a),
                                     FIELD(kiln_gemm_options, trans_b),
                                     FIELD(kiln_gemm_options, bias),
                                     FIELD(kiln_gemm_options, residual),
                                     FIELD(kiln_gemm_options, scale_a),
                                     FIELD(kiln_gemm_options, scale_b),
                                     FIELD(kiln_gemm_options, alpha),
                                     FIELD(kiln_gemm_options, epilogue),
                                     FIELD(kiln_gemm_options, config),
                                     FIELD(kiln_gemm_options, activation),
                                     FIELD(kiln_gemm_options, gate),
                                     FIELD(kiln_gemm_options, accumulator),
                                     FIELD(kiln_gemm_options, allow_tf32),
                                     FIELD(kiln_gemm_options, fast),
                                     FIELD(kiln_gemm_options, reserved),
                                     FIELD(kiln_gemm_options, allocate),
                                     FIELD(kiln_gemm_options, allocate_context),
                                     FIELD(kiln_gemm_options, bound_epilogue),
                                     FIELD(kiln_gemm_options, pdl),
                                     FIELD(kiln_gemm_options, reserved_last),
                                     FIELD(kiln_gemm_options, offsets),
                                     FIELD(kiln_gemm_options, counts),
                                     FIELD(kiln_gemm_options, expected_rows),
                                     {"end of kiln_gemm_options", sizeof(kiln_gemm_options), 0}};
static const size_t kGemmOffsets[] = {0,  8,  12, 16, 24,  32,  40,  48,  56,  64,  72,  76, 80,
                                      84, 88, 92, 96, 104, 112, 120, 124, 128, 136, 144, 152};

static const struct field kNorm[] = {FIELD(kiln_norm_options, struct_size),
                                     FIELD(kiln_norm_options, eps),
                                     FIELD(kiln_norm_options, residual),
                                     FIELD(kiln_norm_options, residual_out),
                                     FIELD(kiln_norm_options, weight_offset),
                                     FIELD(kiln_norm_options, activation),
                                     FIELD(kiln_norm_options, allocate),
                                     FIELD(kiln_norm_options, allocate_context),
                                     {"end of kiln_norm_options", sizeof(kiln_norm_options), 0}};
static const size_t kNormOffsets[] = {0, 8, 16, 24, 32, 36, 40, 48, 56};

static const struct field kMerge[] = {
    FIELD(kiln_merge_states_options, struct_size),
    FIELD(kiln_merge_states_options, base),
    FIELD(kiln_merge_states_options, layout),
    FIELD(kiln_merge_states_options, sinks),
    {"end of kiln_merge_states_options", sizeof(kiln_merge_states_options), 0}};
static const size_t kMergeOffsets[] = {0, 8, 12, 16, 24};

static const struct field kAppend[] = {
    FIELD(kiln_append_kv_options, struct_size),
    FIELD(kiln_append_kv_options, k_scale),
    FIELD(kiln_append_kv_options, v_scale),
    FIELD(kiln_append_kv_options, query),
    FIELD(kiln_append_kv_options, query_out),
    FIELD(kiln_append_kv_options, q_weight),
    FIELD(kiln_append_kv_options, k_weight),
    FIELD(kiln_append_kv_options, eps),
    FIELD(kiln_append_kv_options, positions),
    FIELD(kiln_append_kv_options, cos),
    FIELD(kiln_append_kv_options, sin),
    FIELD(kiln_append_kv_options, interleaved),
    FIELD(kiln_append_kv_options, reserved),
    {"end of kiln_append_kv_options", sizeof(kiln_append_kv_options), 0}};
static const size_t kAppendOffsets[] = {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 92, 96};

static const struct field kTile[] = {FIELD(kiln_gemm_tile, block_m),
                                     FIELD(kiln_gemm_tile, block_n),
                                     FIELD(kiln_gemm_tile, block_k),
                                     FIELD(kiln_gemm_tile, stages),
                                     FIELD(kiln_gemm_tile, cluster),
                                     FIELD(kiln_gemm_tile, splits),
                                     {"end of kiln_gemm_tile", sizeof(kiln_gemm_tile), 0}};
static const size_t kTileOffsets[] = {0, 4, 8, 12, 16, 20, 24};

static const struct field kVariant[] = {
    FIELD(kiln_variant_definition, struct_size),
    FIELD(kiln_variant_definition, name),
    FIELD(kiln_variant_definition, params),
    FIELD(kiln_variant_definition, tensors),
    FIELD(kiln_variant_definition, logits),
    FIELD(kiln_variant_definition, mask),
    FIELD(kiln_variant_definition, file_text),
    FIELD(kiln_variant_definition, file_name),
    {"end of kiln_variant_definition", sizeof(kiln_variant_definition), 0}};
static const size_t kVariantOffsets[] = {0, 8, 16, 24, 32, 40, 48, 56, 64};

static const struct field kEpilogue[] = {
    FIELD(kiln_epilogue_definition, struct_size),
    FIELD(kiln_epilogue_definition, name),
    FIELD(kiln_epilogue_definition, params),
    FIELD(kiln_epilogue_definition, tensors),
    FIELD(kiln_epilogue_definition, value),
    {"end of kiln_epilogue_definition", sizeof(kiln_epilogue_definition), 0}};
static const size_t kEpilogueOffsets[] = {0, 8, 16, 24, 32, 40};

static int failures = 0;

static void check(const char* what, size_t expected, size_t got) {
  if (expected == got) return;
  printf("%s is %lu, it was %lu: a program built before would go wrong\n", what, (unsigned long)got,
         (unsigned long)expected);
  ++failures;
}

static void check_fields(const struct field* fields, const size_t* offsets, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) {
    check(fields[i].name, offsets[i], fields[i].offset);
    if (i > 0)
      check("the end of the field before it", fields[i].offset,
            fields[i - 1].offset + fields[i - 1].bytes);
  }
}
#define CHECK_FIELDS(fields, offsets)                                                     \
  check(#fields, sizeof(offsets) / sizeof *(offsets), sizeof(fields) / sizeof *(fields)); \
  check_fields(fields, offsets, sizeof(offsets) / sizeof *(offsets))

/* Each enumeration's values in the order of their numbers, from 0. */
static const int kValues[] = {KILN_OK,
                              KILN_INVALID_ARGUMENT,
                              KILN_TYPE_ERROR,
                              KILN_COMPILE_ERROR,
                              KILN_CUDA_ERROR,
                              KILN_COMPILE_DISABLED,
                              KILN_EMULATOR_ERROR,
                              KILN_INTERNAL,
                              -1,
                              KILN_NONE,
                              KILN_F16,
                              KILN_BF16,
                              KILN_F32,
                              KILN_F64,
                              KILN_I32,
                              KILN_I64,
                              KILN_U8,
                              KILN_BOOL,
                              KILN_F8_E4M3,
                              KILN_F8_E5M2,
                              KILN_I8,
                              -1,
                              KILN_CPU,
                              KILN_CUDA,
                              -1,
                              KILN_BSHD,
                              KILN_BHSD,
                              -1,
                              KILN_NO_ACTIVATION,
                              KILN_RELU,
                              KILN_GELU,
                              KILN_GELU_TANH,
                              KILN_SILU,
                              KILN_SWIGLU,
                              KILN_GEGLU,
                              KILN_GEGLU_TANH,
                              -1,
                              KILN_DEFAULT_GATE,
                              KILN_HALVES,
                              KILN_INTERLEAVED,
                              -1,
                              KILN_ACCUMULATE_F32,
                              KILN_ACCUMULATE_F16,
                              -1,
                              KILN_LSE_E,
                              KILN_LSE_2,
                              -1,
                              KILN_LSE_HEADS_TOKENS,
                              KILN_LSE_TOKENS_HEADS,
                              -1};

int main(void) {
  size_t i;
  int expected = 0;
  check("KILN_ABI_VERSION", 1, KILN_ABI_VERSION);
  check("kiln_abi_version()", KILN_ABI_VERSION, (size_t)kiln_abi_version());
  check("KILN_MAX_RANK", 5, KILN_MAX_RANK);
  check("KILN_F8_E8M0", 13, KILN_F8_E8M0); /* 12 is a dtype that C cannot pass */
  CHECK_FIELDS(kTensor, kTensorOffsets);
  CHECK_FIELDS(kAttention, kAttentionOffsets);
  CHECK_FIELDS(kSdpa, kSdpaOffsets);
  CHECK_FIELDS(kVarlen, kVarlenOffsets);
  CHECK_FIELDS(kKvCache, kKvCacheOffsets);
  CHECK_FIELDS(kSequences, kSequencesOffsets);
  CHECK_FIELDS(kCache, kCacheOffsets);
  CHECK_FIELDS(kGemm, kGemmOffsets);
  CHECK_FIELDS(kNorm, kNormOffsets);
  CHECK_FIELDS(kMerge, kMergeOffsets);
  CHECK_FIELDS(kAppend, kAppendOffsets);
  CHECK_FIELDS(kTile, kTileOffsets);
  CHECK_FIELDS(kVariant, kVariantOffsets);
  CHECK_FIELDS(kEpilogue, kEpilogueOffsets);
  check("an enumeration in a struct", sizeof(int32_t), sizeof(kiln_dtype));
  for (i = 0; i < sizeof kValues / sizeof *kValues; ++i) {
    if (kValues[i] < 0) {
      expected = 0;
      continue;
    }
    check("an enumeration's value", (size_t)expected++, (size_t)kValues[i]);
  }
  if (failures == 0) printf("the ABI is as it was\n");
  return failures != 0;
}
