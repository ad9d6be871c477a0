/* Kiln for C: epilogues of GEMM with run-time scalars and tensors, beside kiln/c.h, whose
 * conventions and ABI hold here too. docs/variants.md describes them.
 */
#ifndef KILN_C_EPILOGUE_H
#define KILN_C_EPILOGUE_H

#include "kiln/c.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && !defined(KILN_HIDE_API) /* as in kiln/export.h */
#pragma GCC visibility push(default)
#endif

typedef struct kiln_epilogue kiln_epilogue;
typedef struct kiln_bound_epilogue kiln_bound_epilogue;

/* Semicolons separate declarations. */
typedef struct kiln_epilogue_definition {
  size_t struct_size;  /* sizeof(kiln_epilogue_definition) */
  const char* name;    /* a label; the identity is the content */
  const char* params;  /* "t: f32; shift: i32" */
  const char* tensors; /* "s: f32[n]; table: f32[*, 16]" */
  const char* value;   /* "acc * s[col] + t": of acc, bias, residual, row, col, batch, m, n */
} kiln_epilogue_definition;

/* Checks names and types. The compiler checks the expression, at the first call. */
kiln_status kiln_epilogue_create(const kiln_epilogue_definition* definition,
                                 kiln_epilogue** epilogue);
/* In the order of the declarations. Never compiles. `bound` stays valid without `epilogue`, and is
 * what kiln_gemm_options.bound_epilogue takes. */
kiln_status kiln_epilogue_bind(const kiln_epilogue* epilogue, const double* values,
                               size_t value_count, const kiln_tensor* tensors, size_t tensor_count,
                               kiln_bound_epilogue** bound);
void kiln_epilogue_destroy(kiln_epilogue* epilogue);
void kiln_bound_epilogue_destroy(kiln_bound_epilogue* bound);

#if defined(__GNUC__) && !defined(KILN_HIDE_API)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
