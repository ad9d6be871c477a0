/* Kiln for C: variants of attention (docs/variants.md). Part of kiln/c.h, which includes it. */
#ifndef KILN_C_VARIANT_H
#define KILN_C_VARIANT_H

#include "kiln/c.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && !defined(KILN_HIDE_API) /* as in kiln/export.h */
#pragma GCC visibility push(default)
#endif

/* Changes attention's logits or mask: docs/variants.md. Semicolons separate declarations. */
typedef struct kiln_variant kiln_variant;
typedef struct kiln_variant_definition {
  size_t struct_size;    /* sizeof(kiln_variant_definition) */
  const char* name;      /* a label; the identity is the content */
  const char* params;    /* "cap: f32; reach: i32" */
  const char* tensors;   /* "bias: f32[h, q, kv]; table: f32[h, 32]"; see docs/variants.md */
  const char* logits;    /* "cap * tanh(logit / cap)" */
  const char* mask;      /* "q - kv < reach"; true means visible */
  const char* file_text; /* a template file's text with `struct UserVariant`, instead of both */
  const char* file_name; /* its label in messages */
} kiln_variant_definition;
/* Checks names and types. The compiler checks the expressions, at the first call. */
kiln_status kiln_variant_create(const kiln_variant_definition* definition, kiln_variant** variant);
/* In the order of the declarations. Never compiles. `bound` stays valid without `variant`. */
kiln_status kiln_variant_bind(const kiln_variant* variant, const double* values, size_t value_count,
                              const kiln_tensor* tensors, size_t tensor_count,
                              kiln_bound_variant** bound);
/* One of 1 to 4: logits change in the list's order, and masks join. `list` stays the caller's. */
kiln_status kiln_variant_compose(const kiln_bound_variant* const* list, size_t count,
                                 kiln_bound_variant** composed);
void kiln_variant_destroy(kiln_variant* variant);
void kiln_bound_variant_destroy(kiln_bound_variant* bound);

#if defined(__GNUC__) && !defined(KILN_HIDE_API)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
