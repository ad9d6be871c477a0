// The texts of help() and inspect.signature for what is implemented in C++.
#pragma once

namespace kiln::python {

// CPython reads the signature from the lines before "--"; the parameters must match kNames in
// attention.cpp, sdpa.cpp and gemm.cpp (tests/python/test_import.py calls each by name).
// docs/api.md is made of these texts, and tests/python/test_doctests.py runs their examples.
inline constexpr const char* kFlashAttentionDoc =
    R"doc(flash_attention(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, scale=None, sinks=None, alibi_slopes=None, variant=None, layout="bshd", out=None, lse=None, return_lse=False)
--

Attention, softmax(scale * q k^T) v, in one kernel.

q             [batch, len_q, heads, head_dim], float16 or bfloat16, on a CUDA device, or NumPy
              arrays and CPU tensors for the emulated one (see kiln.device)
k, v          [batch, len_kv, heads_kv, head_dim], [batch, len_kv, heads_kv, head_dim_v]
causal        query i sees keys up to i + len_kv - len_q (aligned bottom-right)
window        keys visible before and after the diagonal one, both inclusive; -1 = open
softcap       cap * tanh(logit / cap) after the scale; 0 = none
scale         default 1 / sqrt(head_dim)
sinks         [heads]: one more, unscaled logit in each softmax denominator
alibi_slopes  [heads] or [batch, heads], float32: logit -= slope * |q - kv|
variant       a bound jit.Variant: the user's own logits and mask
layout        "bshd" as above, or "bhsd" with heads before lengths
out           written to when given: like q, with v's head dim
lse           written to when given: float32 [batch, heads, len_q], natural logarithm, without sinks
return_lse    returns (out, lse) instead of out

heads is a multiple of heads_kv (grouped-query attention); head dims are multiples of 8 up to 256;
the last stride of each tensor is 1, the others are free. A row that sees no key gives 0 and -inf.
The result is a new tensor of the caller's framework, computed on its current stream without
waiting. Inputs that require grad are refused unless under torch.no_grad(): forward only.

Raises ValueError and TypeError for bad arguments, and kiln.CompileError, kiln.CudaError,
kiln.EmulatorError or kiln.CompileDisabled (see KILN_JIT) beside them.

    >>> q = numpy.ones((1, 4, 2, 64), numpy.float16)
    >>> k = v = q[:, :, :1]  # two heads of queries share one of keys and values
    >>> out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    >>> out.shape, out.dtype, lse.shape
    ((1, 4, 2, 64), dtype('float16'), (1, 2, 4))
    >>> print(lse[0, 0].round(2))  # 64 / sqrt(64) = 8, and the logarithm of 1, 2, 3 and 4 keys
    [8.   8.69 9.1  9.39]
)doc";

inline constexpr const char* kExplainFlashAttentionDoc =
    R"(explain_flash_attention(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, scale=None, sinks=None, alibi_slopes=None, variant=None, layout="bshd", out=None, lse=None, return_lse=False)
--

What the call would run, as a JSON text; see kiln.explain.
)";

inline constexpr const char* kSdpaDoc =
    R"doc(scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False)
--

torch.nn.functional.scaled_dot_product_attention, forward and without dropout, for tensors of any
framework.

query       [batch.., heads, len_q, head_dim], float16 or bfloat16, of 2 to 5 dimensions
key, value  [batch.., heads, len_kv, head_dim], [batch.., heads, len_kv, head_dim_v]
attn_mask   broadcasts to [batch.., heads, len_q, len_kv]: bool (True takes part), or float32 or
            query's dtype, added to the logits. Read with its own strides: an expanded mask
            (stride 0) costs no memory
dropout_p   must be 0.0
is_causal   query i sees keys up to i (aligned top-left, unlike flash_attention's causal); excludes
            attn_mask
scale       default 1 / sqrt(head_dim)
enable_gqa  heads of key and value divide query's instead of being equal

Batch dimensions, and heads without enable_gqa, broadcast where they are 1 or missing. Head dims are
multiples of 8 up to 256; the last stride of query, key and value is 1. A row that sees no key gives
0. Returns a new contiguous tensor [batch.., heads, len_q, head_dim_v] of the caller's framework.

Raises what flash_attention does.

    >>> query = numpy.zeros((2, 4, 64), numpy.float16)  # every key that takes part weighs the same
    >>> value = numpy.full((2, 4, 64), 7, numpy.float16)
    >>> value[:, 2] = 9
    >>> mask = numpy.array([[True, False, True, False]])  # of keys, for every head and query
    >>> out = jit.scaled_dot_product_attention(query, query, value, attn_mask=mask)
    >>> out.shape, float(out[1, 3, 0])
    ((2, 4, 64), 8.0)
)doc";

inline constexpr const char* kExplainSdpaDoc =
    R"(explain_scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False)
--

What the call would run, as a JSON text; see kiln.explain.
)";

inline constexpr const char* kGemmDoc =
    R"doc(gemm(a, b, *, trans_a=False, trans_b=False, bias=None, activation=None, gate=None, residual=None, scale_a=None, scale_b=None, alpha=1.0, out=None, out_dtype=None, precision=None, accumulator="float32", epilogue=None, config=None)
--

Matrix product with its epilogue: cast(activation(alpha * a b * scale_a * scale_b + bias) + residual).

a            [m, k] or [batch, m, k], float16, bfloat16 or float32, on a CUDA device, or NumPy
             arrays and CPU tensors for the emulated one (see kiln.device)
             (on Hopper also float8_e4m3fn or float8_e5m2)
b            [k, n] or [batch, k, n], of a's dtype; a batch of 1 or none is broadcast. 8-bit floats
             may be mixed, and lie as a and w.t() of contiguous a [m, k] and w [n, k]
trans_a/_b   shorthand for a.mT / b.mT; layouts are read from strides, so w.t() and trans_b=True
             are the same kernel
bias         [n] or [batch, 1, n]
activation   None, "relu", "gelu" (erf), "gelu_tanh" or "silu"; or gated: "swiglu", "geglu" (erf) or
             "geglu_tanh", which make [m, h] of a b with n = 2 h columns: silu or gelu of one
             column, the gate, times another. bias and scale_b then have 2 h entries
gate         of a gated activation: "halves" (default), columns c and h + c, or "interleaved", columns
             2 c and 2 c + 1
residual     like out, added last
scale_a      float32: one for all, [] or [1], or one for each row, [m] or [m, 1]
scale_b      float32: one for all, [] or [1], or one for each column, [n] or [1, n]; with a batch
             vectors may be [batch, m, 1] and [batch, 1, n]
alpha        scales the product
out          written to when given: [m, n] or [batch, m, n]
out_dtype    default a's dtype, bfloat16 for 8-bit floats; "float16", "bfloat16", "float32" or the
             framework's dtype
precision    "tf32" is required for float32 inputs; "fast" leaves sums of 8-bit floats to the tensor
             cores, which keep about 14 bits, instead of adding up in float32 every 128 of k
accumulator  "float32", or "float16" for float16 inputs
epilogue     a C++ expression of acc, bias, residual, row, col and batch that replaces the above
config       (block_m, block_n, block_k, stages) or a dict of them: a row of the config table

One of the last two strides of a and of b is 1, and the last one of out, bias and residual. The
result is a new tensor of the caller's framework, computed on its current stream without waiting.
Inputs that require grad are refused unless under torch.no_grad(): forward only.

Raises ValueError and TypeError for bad arguments, and kiln.CompileError, kiln.CudaError,
kiln.EmulatorError or kiln.CompileDisabled (see KILN_JIT) beside them.

    >>> x = numpy.eye(16, dtype=numpy.float16)
    >>> weight = numpy.full((8, 16), 2, numpy.float16)  # [n, k], as a linear layer keeps it
    >>> bias = numpy.full(8, -5, numpy.float32)
    >>> out = jit.gemm(x, weight.T, bias=bias, activation="relu", alpha=3.0)
    >>> out.shape, out.dtype, float(out[3, 5])
    ((16, 8), dtype('float16'), 1.0)
)doc";

inline constexpr const char* kExplainGemmDoc =
    R"(explain_gemm(a, b, *, trans_a=False, trans_b=False, bias=None, activation=None, gate=None, residual=None, scale_a=None, scale_b=None, alpha=1.0, out=None, out_dtype=None, precision=None, accumulator="float32", epilogue=None, config=None)
--

What the call would run, as a JSON text; see kiln.explain.
)";

inline constexpr const char* kVariantDoc =
    R"doc(A change to attention's logits or mask, written as C++ expressions or as a template file.

name     a label for messages and listings; the identity is `digest`, made of all the rest
params   run-time scalars by name: "f32" or "i32", at most 16
tensors  run-time tensors by name, at most 8, with the indices of the element read:
         {"bias": "f32[h, q, kv]"}; each dimension has its index's extent, or 1
logits   the new logit, of logit (float, scaled), q, row, kv, b, h, h_kv, len_q, len_kv and the names
mask     true where the key is visible
file     path of a template file that defines struct UserVariant, instead of the expressions

Calling the variant binds values and tensors by name and never compiles; the bound object keeps its
tensors alive. Expressions are compiled at the first attention call; errors point into them.

Raises ValueError and TypeError for wrong names, types and shapes, and kiln.CompileError, at that
call, for an expression that does not compile. docs/variants.md tells the whole.

    >>> capped = jit.Variant("capped", params={"cap": "f32"}, logits="cap * tanh(logit / cap)")
    >>> q = numpy.ones((1, 4, 1, 64), numpy.float16)
    >>> k, cap = q[:, :1], capped(cap=2.0)
    >>> out, lse = jit.flash_attention(q, k, k, variant=cap, return_lse=True)
    >>> print(lse[0, 0].round(3))  # 2 tanh(8 / 2), for each of the four queries
    [1.999 1.999 1.999 1.999]
)doc";

inline constexpr const char* kBoundVariantDoc =
    "A Variant with its values and tensors: what flash_attention takes as variant=.";

// ------------------------------------------------------------------------------- exceptions

inline constexpr const char* kErrorDoc =
    R"doc(The base of what Kiln raises beside ValueError and TypeError.

    >>> issubclass(kiln.CompileDisabled, kiln.Error), issubclass(kiln.Error, RuntimeError)
    (True, True)
)doc";

inline constexpr const char* kCompileErrorDoc =
    R"doc(NVRTC refused a source, or no NVRTC could be loaded.

log   NVRTC's whole output; errors in an expression point into its text
path  the source's: your template file, or the name of what Kiln generated

    >>> a = numpy.ones((16, 16), numpy.float16)
    >>> try:
    ...     jit.gemm(a, a, epilogue="acc + bais")
    ... except kiln.CompileError as error:
    ...     print(error.log.splitlines()[0])
    gemm epilogue(1): error: identifier "bais" is undefined
)doc";

inline constexpr const char* kCudaErrorDoc =
    R"doc(A CUDA driver call failed, or no device can be used.

call     the failed call; empty where there was none
name     the error's name, such as CUDA_ERROR_INVALID_VALUE; empty where there was no call
message  the driver's words

    >>> try:
    ...     kiln.preload({"op": "gemm", "block_m": 32, "stages": 4}, device=63)
    ... except kiln.CudaError as error:  # no driver, or not as many devices
    ...     print(len(error.message) > 0)
    True
)doc";

inline constexpr const char* kCompileDisabledDoc =
    R"doc(A kernel was not in the cache while compiling is off, or while a stream was capturing.

spec  names the kernel: kiln.prewarm([error.spec]) is the cure

    >>> a = numpy.ones((16, 16), numpy.float16)
    >>> with kiln.no_compile():
    ...     try:
    ...         jit.gemm(a, a, epilogue="acc * 7.0f")
    ...     except kiln.CompileDisabled as error:
    ...         print(error.spec["op"], error.spec["epilogue"])
    gemm acc * 7.0f
)doc";

inline constexpr const char* kEmulatorErrorDoc =
    R"doc(The emulated device refused a kernel, or trapped it.

fault        what it found, such as "race on shared memory"; docs/emulator.md lists them
kernel       the entry's name; None, like all below, where it is not known
block        (x, y, z)
warp, lane   of the block, of the warp
ptx_line     line of the PTX, from 1 on
instruction  the text of that line's instruction
source       file and line, where the PTX has line information

    >>> try:
    ...     kiln.emulate(".version 8.0 .target sm_80 .address_size 64 .entry k() { trap; }")
    ... except kiln.EmulatorError as error:
    ...     print(error.fault, error.kernel, error.block, error.instruction)
    trap k (0, 0, 0) trap
)doc";

inline constexpr const char* kNoCompileDoc =
    "What kiln.no_compile() returns; may be entered more than once.";

}  // namespace kiln::python
