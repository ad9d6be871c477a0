/* Kiln for C: mixtures of experts and 8-bit activations, beside kiln/c.h, whose conventions and ABI
 * hold here too. kiln/moe.h and kiln/quantize.h have the rules.
 *
 * Plans are those of kiln/c.h. kiln_plan_launch takes the pointers of those tensors that were given
 * to the plan function, in the order of its parameters; counts and bias come last. Only the plan of
 * kiln_moe_permute may need a workspace.
 */
#ifndef KILN_C_MOE_H
#define KILN_C_MOE_H

#include "kiln/c.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && !defined(KILN_HIDE_API) /* as in kiln/export.h */
#pragma GCC visibility push(default)
#endif

typedef struct kiln_quantize_options {
  size_t struct_size;         /* sizeof(kiln_quantize_options) */
  const int32_t* group;       /* columns that share a scale, 0 = all of a row; NULL = 128 */
  const kiln_tensor* counts;  /* i32 [experts], of x [experts, capacity, columns] */
  int32_t activation;         /* kiln_activation: none or a gated one */
  int32_t scale_power_of_two; /* rounds scales up */
} kiln_quantize_options;

/* Quantises x [rows, columns] into out, KILN_F8_E4M3, KILN_F8_E5M2 or KILN_I8, with a scale, f32
 * or KILN_F8_E8M0, for each group of columns: x is about out * scale. */
kiln_status kiln_quantize(const kiln_tensor* x, const kiln_tensor* out, const kiln_tensor* scale,
                          const kiln_quantize_options* options, void* stream);
kiln_status kiln_plan_quantize(const kiln_tensor* x, const kiln_tensor* out,
                               const kiln_tensor* scale, const kiln_quantize_options* options,
                               kiln_plan** plan);

typedef enum kiln_moe_scoring { KILN_SCORE_SOFTMAX = 0, KILN_SCORE_SIGMOID = 1 } kiln_moe_scoring;

typedef struct kiln_moe_route_options {
  size_t struct_size;      /* sizeof(kiln_moe_route_options) */
  const kiln_tensor* bias; /* [experts]: added to scores for the choice alone */
  const float* scale;      /* of the weights; NULL = 1 */
  int32_t scoring;         /* kiln_moe_scoring */
  int32_t keep_sums;       /* does not divide a token's weights by their sum */
  int32_t groups;          /* of neighbouring experts, 0 = 1, of which the best */
  int32_t top_groups;      /* are chosen first, 0 = 1 */
} kiln_moe_route_options;

/* Chooses experts by logits [tokens, experts]: weights, f32, and experts, KILN_I32, [tokens,
 * top_k]. */
kiln_status kiln_moe_route(const kiln_tensor* logits, const kiln_tensor* weights,
                           const kiln_tensor* experts, const kiln_moe_route_options* options,
                           void* stream);
kiln_status kiln_plan_moe_route(const kiln_tensor* logits, const kiln_tensor* weights,
                                const kiln_tensor* experts, const kiln_moe_route_options* options,
                                kiln_plan** plan);

/* Sorts the rows of x [tokens, columns] by experts, KILN_I32 or KILN_I64 [tokens, top_k], into out
 * [tokens * top_k, columns]; offsets, KILN_I32 [num_experts], are where each expert's rows end, and
 * inverse, KILN_I32 [tokens, top_k], is each pair's row. `allocate`, which may be NULL, gives a
 * workspace as in the options of kiln/c.h: many pairs are sorted faster with it. */
kiln_status kiln_moe_permute(const kiln_tensor* x, const kiln_tensor* experts,
                             const kiln_tensor* out, const kiln_tensor* offsets,
                             const kiln_tensor* inverse, kiln_allocate allocate,
                             void* allocate_context, void* stream);
kiln_status kiln_plan_moe_permute(const kiln_tensor* x, const kiln_tensor* experts,
                                  const kiln_tensor* out, const kiln_tensor* offsets,
                                  const kiln_tensor* inverse, kiln_plan** plan);

/* out [tokens, columns] = the sum over k of weights[token, k] * y[inverse[token, k]]; weights, f32,
 * may be NULL. */
kiln_status kiln_moe_unpermute(const kiln_tensor* y, const kiln_tensor* inverse,
                               const kiln_tensor* weights, const kiln_tensor* out, void* stream);
kiln_status kiln_plan_moe_unpermute(const kiln_tensor* y, const kiln_tensor* inverse,
                                    const kiln_tensor* weights, const kiln_tensor* out,
                                    kiln_plan** plan);

#if defined(__GNUC__) && !defined(KILN_HIDE_API)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
