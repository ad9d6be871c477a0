// The texts of help() for the classes that are implemented in C++; those of the operations are in
// docs/. docs/api.md is made of these texts, and tests/python/test_doctests.py runs their examples.
#pragma once

namespace kiln::python {

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

spec  names the kernel, or as a list every kernel that the call lacks: kiln.prewarm([error.spec]) is
      the cure

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
