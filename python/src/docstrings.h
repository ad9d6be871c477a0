// The texts of help() for the classes that are implemented in C++; those of the operations are in
// docs/. docs/api.md is made of these texts, and tests/python/test_doctests.py runs their examples.
#pragma once

namespace kiln::python {

inline constexpr const char* kVariantDoc =
    R"doc(A change to attention's logits or mask, written as C++ expressions or as a template file.

name     a label for messages and listings; the identity is `digest`, which covers everything else
params   run-time scalars by name, "f32" or "i32", at most 16
tensors  run-time tensors by name, at most 8, with the indices of the element that is read:
         {"bias": "f32[h, q, kv]"}; each dimension has the extent of its index, or 1. A table such as
         "f32[h, 32]" or "i64[*]" is read at indices that the expression computes: table(h, 3)
logits   an expression for the new logit; it may use logit (float, scaled), q, row, kv, b, h, h_kv,
         len_q, len_kv and the names of params and tensors
mask     an expression that is true where the key is visible
file     path of a template file that defines struct UserVariant, instead of the expressions

Call the variant to bind values and tensors by name. That never compiles; the bound object keeps the
memory that its tensors had. The expressions are compiled at the first attention call, and errors
point into them. plot() draws which tiles the kernel skips for a mask.

Raises ValueError and TypeError for wrong names, types and shapes. The first attention call raises
kiln.CompileError for an expression that does not compile. docs/variants.md describes variants.

    >>> import numpy
    >>> from kiln import jit
    >>> capped = jit.Variant("capped", params={"cap": "f32"}, logits="cap * tanh(logit / cap)")
    >>> q = numpy.ones((1, 4, 1, 64), numpy.float16)
    >>> k, cap = q[:, :1], capped(cap=2.0)
    >>> out, lse = jit.flash_attention(q, k, k, variant=cap, return_lse=True)
    >>> print(lse[0, 0].round(3))  # 2 tanh(8 / 2), for each of the four queries
    [1.999 1.999 1.999 1.999]
)doc";

inline constexpr const char* kBoundVariantDoc =
    "A Variant with its values and tensors, which flash_attention takes as variant=, alone or in a "
    "list.";

inline constexpr const char* kPlotDoc =
    R"doc(plot(seq_q, seq_kv, path="mask.png", *, causal=False, window=None, arch=None, tile=None,
     head_dim=128, heads=None, heads_kv=None, batch=None, head=0, sequence=0)

Draws which tiles attention's kernel skips, masks and computes whole for this mask, as a PNG.

seq_q, seq_kv  the lengths; query i is at position i + seq_kv - seq_q among the keys
path           the file; None draws none
causal, window as flash_attention's: masks beside the variant's
arch           the architecture whose kernel decides, such as "sm_90a"; None: that of the emulated
               device, which is the GPU's where it has one's
tile           (queries, keys) that are decided about together; None: those of the kernel that such
               a call runs, of whose tile 16, 32 or 64 queries decide for themselves
head_dim       of that call
heads, heads_kv, batch  of that call; None: as many as the variant's tensors have
head, sequence which of them is drawn

The kinds come from the functions that the kernel calls, compiled for the emulated device, and what
is visible from the mask, evaluated for every pair; seconds where lengths are thousands. Returns a
dict: "skip", "partial" and "full" count the tiles; of those "empty" are visited although nothing in
them is visible, and "whole" are masked although all of it is; "wrong" hide visible pairs or show
hidden ones, which only a template file's own functions can do; "tiles" all; "share" of all tiles
are visited and "visible" of all pairs are seen; "kinds" has a row of tiles in each list; "tile",
"path" and "what" tell of the kernel. matplotlib draws axes, a title and a legend; without it the
picture has the tiles alone, and the same words as its description.

    >>> from kiln import jit
    >>> near = jit.Variant("near", params={"w": "i32"}, mask="kv <= q && q - kv < w")
    >>> drawn = near(w=64).plot(256, 256, None, tile=(64, 64))
    >>> drawn["skip"], drawn["partial"], drawn["full"], drawn["empty"]
    (9, 7, 0, 0)
)doc";

inline constexpr const char* kEpilogueDoc =
    R"doc(An epilogue of jit.gemm with run-time scalars and tensors, written as a C++ expression.

name     a label for messages and listings; the identity is `digest`, which covers everything else
params   run-time scalars by name, "f32" or "i32", at most 16
tensors  run-time tensors by name, at most 8, with the extents of their dimensions:
         {"s": "f32[n]"}; m, n and batch are those of the output, and may be 1; a whole number; or
         "*" for any. The expression reads an element by an index for each dimension: s[col]
value    an expression for the output; it may use acc, bias, residual (floats), row, col, batch, m, n
         (ints) and the names of params and tensors

Call the epilogue to bind values and tensors by name. That never compiles; the bound object keeps the
memory that its tensors had. The expression is compiled at the first call of jit.gemm, and errors
point into it. docs/variants.md describes epilogues.

Raises ValueError and TypeError for wrong names and types.

    >>> import numpy
    >>> from kiln import jit
    >>> scaled = jit.Epilogue(
    ...     "scaled", params={"t": "f32"}, tensors={"s": "f32[n]"}, value="acc * s[col] + t"
    ... )
    >>> x, s = numpy.eye(16, dtype=numpy.float16), numpy.arange(16, dtype=numpy.float32)
    >>> out = jit.gemm(x, x, epilogue=scaled(t=0.5, s=s))
    >>> float(out[3, 3]), float(out[3, 4])
    (3.5, 0.5)
)doc";

inline constexpr const char* kBoundEpilogueDoc =
    "An Epilogue with its values and tensors, which jit.gemm takes as epilogue=.";

// ------------------------------------------------------------------------------- exceptions

inline constexpr const char* kErrorDoc =
    R"doc(The base class of the errors that Kiln raises, apart from ValueError and TypeError.

    >>> import kiln
    >>> issubclass(kiln.CompileDisabled, kiln.Error), issubclass(kiln.Error, RuntimeError)
    (True, True)
)doc";

inline constexpr const char* kCompileErrorDoc =
    R"doc(NVRTC refused a source, or no NVRTC could be loaded.

log   NVRTC's whole output; errors in an expression point into its text
path  the path of the source: your template file, or the name of the source that Kiln generated

    >>> import kiln, numpy
    >>> from kiln import jit
    >>> a = numpy.ones((16, 16), numpy.float16)
    >>> try:
    ...     jit.gemm(a, a, epilogue="acc + bais")
    ... except kiln.CompileError as error:
    ...     print(error.log.splitlines()[0])
    gemm epilogue(1): error: identifier "bais" is undefined
)doc";

inline constexpr const char* kCudaErrorDoc =
    R"doc(A CUDA driver call failed, or no device can be used.

call     the failed call; empty if no call was made
name     the error's name, such as CUDA_ERROR_INVALID_VALUE; empty if no call was made
message  the driver's own message

    >>> import kiln
    >>> try:
    ...     kiln.preload({"op": "gemm", "block_m": 32, "stages": 4}, device=63)
    ... except kiln.CudaError as error:  # no driver, or not as many devices
    ...     print(len(error.message) > 0)
    True
)doc";

inline constexpr const char* kCompileDisabledDoc =
    R"doc(A kernel was not in the cache while compiling was off or a stream was being captured.

spec  the spec of the kernel, or a list of specs if the call lacks several kernels;
      kiln.prewarm(error.spec) compiles them

    >>> import kiln, numpy
    >>> from kiln import jit
    >>> a = numpy.ones((16, 16), numpy.float16)
    >>> with kiln.no_compile():
    ...     try:
    ...         jit.gemm(a, a, epilogue="acc * 7.0f")
    ...     except kiln.CompileDisabled as error:
    ...         print(error.spec["op"], error.spec["epilogue"])
    gemm acc * 7.0f
)doc";

inline constexpr const char* kEmulatorErrorDoc =
    R"doc(The emulated device refused a kernel, or stopped it at a fault.

fault        the kind of fault, such as "race on shared memory"; docs/emulator.md lists them
kernel       the entry's name; this and all fields below are None if they are not known
block        (x, y, z)
warp, lane   the warp of the block and the lane of the warp
ptx_line     line of the PTX, counted from 1
instruction  the text of that line's instruction
source       file and line, where the PTX has line information

    >>> import kiln
    >>> try:
    ...     kiln.emulate(".version 8.0 .target sm_80 .address_size 64 .entry k() { trap; }")
    ... except kiln.EmulatorError as error:
    ...     print(error.fault, error.kernel, error.block, error.instruction)
    trap k (0, 0, 0) trap
)doc";

inline constexpr const char* kNoCompileDoc =
    "The context that kiln.no_compile() returns. It may be entered more than once, and left on "
    "another thread.";

// As pybind writes the signatures of other constructors.
inline constexpr const char* kVariantInit =
    "__init__(self: kiln._core.Variant, name: object, *, params: object = None, "
    "tensors: object = None, logits: object = None, mask: object = None, file: object = None) "
    "-> None\n";
inline constexpr const char* kEpilogueInit =
    "__init__(self: kiln._core.Epilogue, name: object, *, params: object = None, "
    "tensors: object = None, value: object) -> None\n";

}  // namespace kiln::python
