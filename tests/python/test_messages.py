"""Errors as users meet them: provoked, compared with the text that is meant, and found in
docs/troubleshooting.md. Messages with tests of their own elsewhere are not all repeated here."""

import json

import kiln
import numpy as np
import pytest
from kiln import jit
from message_page import check

HALF = np.float16
KERNEL = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"


def array(*shape, dtype=HALF):
    return np.zeros(shape, dtype)


def attention(q=None, k=None, v=None, **options):
    q = array(1, 8, 2, 64) if q is None else q
    k = array(1, 8, 2, 64) if k is None else k
    return jit.flash_attention(q, k, k if v is None else v, **options)


def sdpa(**options):
    q = array(1, 2, 8, 64)
    return jit.scaled_dot_product_attention(q, q, q, **options)


SHARED, SHARED_KEYS = array(17, 16), array(1, 8, 2, 64)


def gemm(a=None, b=None, **options):
    a = array(16, 32) if a is None else a
    return jit.gemm(a, array(32, 16) if b is None else b, **options)


def variant(**options):
    return jit.Variant("mine", **options)


def with_variant(values, **options):
    return attention(variant=variant(**options)(**values))


CALLS = [
    (lambda: gemm(array(2)), ValueError, "a must have 2 dimensions, or 3 with a batch, got [2]"),
    (lambda: gemm(b=array(8, 16)), ValueError, "b must have 32 rows, the columns of a; a is [16,"),
    (lambda: gemm(activation="tanh"), ValueError, "activation must be relu, gelu, gelu_tanh, silu"),
    (lambda: gemm(alpha=float("nan")), ValueError, "alpha must be a finite number, got nan"),
    (
        lambda: gemm(array(16, 32, dtype=np.float32), array(32, 16, dtype=np.float32)),
        TypeError,
        'which is computed in tf32 (10 bits of mantissa); pass precision="tf32" to allow that',
    ),
    (lambda: gemm(precision="fast"), ValueError, '"fast" is for float8 inputs, got'),
    (lambda: gemm(precision="tf32"), ValueError, '"tf32" is for float32 inputs, got float16'),
    (
        lambda: gemm(out_dtype="float4"),
        TypeError,
        "out_dtype must be a dtype that Kiln computes with, or its name, such as",
    ),
    (
        lambda: attention(scale=1e300),
        ValueError,
        "scale must fit a float32, up to 3.4e38, got 1e+300",
    ),
    (lambda: attention(softcap=1e5), ValueError, "softcap must be at most 1000, beyond which"),
    (
        lambda: gemm(epilogue="acc + bias"),
        ValueError,
        "epilogue names bias, which is not given; give bias too",
    ),
    (
        lambda: sdpa(attn_mask=array(8, dtype=bool)),
        ValueError,
        "attn_mask must have 2 to 5 dimensions, [batch.., heads, len_q, len_kv], got [8]; of a "
        "mask of keys alone pass mask[None, :]",
    ),
    (
        lambda: gemm(array(16, 16), array(16, 16), out=SHARED[:16], residual=SHARED[1:]),
        ValueError,
        "out shares memory with residual; it may be that very tensor",
    ),
    (
        lambda: attention(out=SHARED_KEYS, k=SHARED_KEYS),
        ValueError,
        "out shares memory with k, which the call reads while it writes",
    ),
    (lambda: gemm(config={"block_m": 16}), ValueError, "it needs block_m, block_n, block_k and st"),
    (
        lambda: gemm(config={"block_m": 1, "block_n": 1, "block_k": 1, "stages": 1, "x": 1}),
        ValueError,
        "has unknown keys; it takes block_m, block_n, block_k, stages, cluster, splits",
    ),
    (
        lambda: gemm(config=(7, 7, 7, 7)),
        ValueError,
        "(block_m x block_n x block_k x stages), got 7",
    ),
    (lambda: gemm(config=(2**40, 1, 1, 1)), ValueError, "must fit an integer of 32 bits, got 1099"),
    (lambda: attention(window=(2**70, 0)), ValueError, "must fit an integer of 64 bits, got 1180"),
    (lambda: attention(scale=float("inf")), ValueError, "scale must be a finite number, got inf"),
    (lambda: attention(array(1, 8, 2, 63)), ValueError, "head dim that is a multiple of 8 up to"),
    (
        lambda: attention(array(8, 2, 64)),
        ValueError,
        "must have 4 dimensions [batch, length, heads",
    ),
    (lambda: attention(layout="sbhd"), ValueError, 'layout must be "bshd" or "bhsd", got "sbhd"'),
    (lambda: attention(np.zeros((1, 8, 2, 64))), TypeError, "float64"),
    (lambda: attention(np.zeros((1, 8, 2, 64), complex)), TypeError, "does not compute with"),
    (
        lambda: attention(array(1, 1, 1, 1, 1, 1, 8, 64)),
        ValueError,
        "dimensions; no tensor of Kiln's has more than",
    ),
    (lambda: attention([[1.0]]), TypeError, "got list; make a tensor of it where the others"),
    (lambda: attention(casual=True), TypeError, "got an unexpected keyword argument 'casual'"),
    (lambda: attention(softmax_scale=1.0), TypeError, "'softmax_scale'; its name here is 'scale'"),
    (lambda: attention(window_size=(8, 0)), TypeError, "'window_size'; its name here is 'window'"),
    (lambda: jit.gemm(array(2, 2)), TypeError, "() is missing the argument 'b'"),
    (
        lambda: variant(params={"p": "f16"}, logits="p"),
        ValueError,
        """the type of the parameter 'p' must be "f32" or "i32", got "f16\"""",
    ),
    (
        lambda: variant(tensors={"t": "f64[h]"}, logits="t"),
        ValueError,
        "the type of the tensor 't' must be f32, f16, bf16, i32, i64, u8 or bool, got",
    ),
    (lambda: attention(layout=None), ValueError, 'or "bhsd", got None; leave it out for "bshd"'),
    (
        lambda: variant(params={f"p{i}": "f32" for i in range(17)}, logits="p0"),
        ValueError,
        "at most 16 parameters are supported",
    ),
    (
        lambda: variant(tensors={f"t{i}": "f32[h]" for i in range(9)}, logits="t0"),
        ValueError,
        "at most 8 tensors are supported",
    ),
    (
        lambda: attention(variant=[variant(logits="1")] * 5),
        ValueError,
        "Variant: a list must have 1 to 4 variants, got 5",
    ),
    (
        lambda: variant(tensors={"t": "f32[x]"}, logits="t"),
        ValueError,
        "has the index 'x'; expected b, h, h_kv, row, q, kv, a whole number or *",
    ),
    (lambda: variant(params={"int": "f32"}, logits="1"), ValueError, "'int' cannot name a par"),
    (lambda: variant(params={"NULL": "f32"}, logits="1"), ValueError, "'NULL' cannot name a par"),
    (lambda: variant(params={"a__b": "f32"}, logits="1"), ValueError, "'a__b' cannot name a par"),
    (lambda: variant(params={"_Bool": "f32"}, logits="1"), ValueError, "'_Bool' cannot name a"),
    (lambda: variant(), ValueError, "changes nothing: give logits=, mask= or a template file"),
    (lambda: variant(logits="a\n#b"), ValueError, "must be one line without preprocessor direct"),
    (lambda: variant(params={"p": "f32"}, logits="p")(1.0), TypeError, "values are passed by name"),
    (
        lambda: with_variant(
            {"t": array(3, 3, dtype=np.float32)}, tensors={"t": "f32[h]"}, logits="t"
        ),
        ValueError,
        "must have 1 dimension as declared, got",
    ),
    (
        lambda: with_variant(
            {"t": array(3, dtype=np.float32)}, tensors={"t": "f32[h]"}, logits="t"
        ),
        ValueError,
        "must have size 2 (or 1) in dimension",
    ),
    (lambda: attention(variant=3), TypeError, "must be a jit.Variant with its values bound"),
    (
        lambda: kiln.set_log(3),
        TypeError,
        "must be callable as callback(level, text) or None, got 3",
    ),
    (lambda: kiln.no_compile().__exit__(), RuntimeError, "left without being entered; write `with"),
    (lambda: kiln.set_jit("on"), ValueError, "the jit mode must be auto, warn or off, got 'on'"),
    (lambda: kiln.device("gpu"), ValueError, "cuda, cuda:N, emulator or emulator:ARCH"),
    (lambda: kiln.device("emulator:sm_20"), ValueError, "the emulator does not model 'sm_20'"),
    (lambda: kiln.device("emulator:fast"), ValueError, "options are late, eager, seed=N, checks="),
    (
        lambda: kiln.explain("conv"),
        ValueError,
        "explain: op must be one of append_kv, flash_attention, flash_attention_varlen, flash",
    ),
    (lambda: kiln.prewarm("{", "sm_80"), ValueError, "not valid JSON: byte 2"),
    (
        lambda: kiln.prewarm({"op": "conv"}, "sm_80"),
        ValueError,
        "append_kv, quantize, moe_route, moe_permute or moe_unpermute, got 'conv",
    ),
    (lambda: kiln.prewarm({"op": "gemm"}, "sm_8"), ValueError, "unknown arch 'sm_8'; expected one"),
    (lambda: kiln.prewarm({"op": "gemm", "x": 1}, "sm_80"), ValueError, "docs/prewarm.md lists"),
    (
        lambda: kiln.prewarm({"op": "flash_attention"}, "sm_80"),
        ValueError,
        "field 'head_dim' is missing; give a multiple of 8 up to 256, or 512",
    ),
    (
        lambda: kiln.prewarm({"op": "gemm", "block_m": 7}, "sm_80"),
        ValueError,
        "leave the tile fields out, or take a row that kiln inspect lists",
    ),
    (
        lambda: kiln.prewarm({"op": "gemm", "dtype": "float8_e4m3fn"}, "sm_80"),
        ValueError,
        "is for sm_90a alone: ",
    ),
    (
        lambda: kiln.prewarm({"op": "gemm", "epilogue": "acc", "activation": "relu"}, "sm_80"),
        ValueError,
        "give 'epilogue' or 'activation', not both",
    ),
    (
        lambda: kiln.prewarm({"op": "gemm", "accumulator": "float16"}, "sm_80"),
        ValueError,
        "field 'accumulator' float16 needs dtype float16",
    ),
    (lambda: kiln.TensorMap(array(4), (4,), swizzle=3), ValueError, "swizzle must be 0, 32, 64 or"),
    (
        lambda: kiln.emulate(KERNEL, schedule="now"),
        ValueError,
        "must be 'late' or 'eager', got 'now'",
    ),
    (lambda: kiln.emulate(3), TypeError, "emulate: ptx must be text or a path, got int"),
    (lambda: gemm(scale_a=array(3, dtype=np.float32)), ValueError, "[] or [1] (one for all), or ["),
    (lambda: gemm(scale_a=array(16)), TypeError, "scale_a must be float32, got float16"),
    (
        lambda: gemm(out=array(16, 16), out_dtype="float32"),
        TypeError,
        "but out is float16; give one of the two",
    ),
    (
        lambda: gemm(array(2, 16, 32), array(3, 32, 16)),
        ValueError,
        "b must have 2 batch entries like a, or 1, got 3: a is [2, 16, 32], b is [3, 32, 16]",
    ),
    (lambda: gemm(gate="halves"), ValueError, "is for the activations swiglu, geglu and geglu_tan"),
    (
        lambda: gemm(activation="relu", epilogue="acc"),
        ValueError,
        "cannot be combined with epilogue; write it in the expression",
    ),
    (
        lambda: with_variant({"t": 3.0}, tensors={"t": "f32[h]"}, logits="t"),
        TypeError,
        "must be a tensor",
    ),
    (
        lambda: kiln.prewarm({"op": "gemm", "loads": "bytes"}, "sm_80"),
        ValueError,
        "must be elements, boxes or vectors, got 'bytes'",
    ),
    (
        lambda: kiln.prewarm({"op": "gemm", "block_m": "16"}, "sm_80"),
        ValueError,
        "has the wrong type: it must be",
    ),
    (
        lambda: kiln.prewarm(
            {"op": "flash_attention", "head_dim": 64, "variant": {"x": 1}}, "sm_80"
        ),
        ValueError,
        "spec: field 'variant'",
    ),
    (lambda: gemm(activation="geglu", epilogue="acc"), ValueError, "cannot be gated with an epi"),
    (lambda: kiln.emulate(KERNEL, block=(64, 32)), kiln.EmulatorError, "threads; at most 1024"),
    (
        lambda: kiln.emulate(KERNEL, block=2048),
        kiln.EmulatorError,
        "each size is 1 to 1024x1024x64",
    ),
    (lambda: kiln.emulate(KERNEL, cluster=2, grid=2), kiln.EmulatorError, "clusters need sm_90 or"),
    (
        lambda: kiln.emulate(KERNEL.replace("sm_80", "sm_90a"), arch="sm_80"),
        kiln.EmulatorError,
        "does not run on",
    ),
    (
        lambda: kiln.emulate(KERNEL, shared_bytes=1 << 20),
        kiln.EmulatorError,
        "bytes of shared memory a block; ",
    ),
    (lambda: kiln.emulate(KERNEL, arguments=[1]), ValueError, "takes 0 arguments"),
    (
        lambda: kiln.emulate(KERNEL, grid=(1, 0)),
        ValueError,
        "must be 1 to 3 positive whole numbers",
    ),
    (lambda: kiln.emulate(KERNEL, entry="other"), ValueError, "the module has no kernel 'other'"),
    (
        lambda: kiln.inspect({"op": "gemm", "block_m": 16, "epilogue": "acc +* 2"}, "sm_80"),
        kiln.CompileError,
        "could not compile",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), CALLS, ids=[text for _, _, text in CALLS])
def test_calls(call, kind, text):
    with kiln.device("emulator:sm_90a"), pytest.raises(kind) as raised:
        call()
    check(raised.value, kind, text)


CONTROLS = [
    (lambda: kiln.device(0), 'choice must be a name such as "cuda:0" or "emulator", got 0'),
    (lambda: kiln.device("emulator", seed="x"), "device: seed must be a whole number, got 'x'"),
    (lambda: kiln.preload({}, "cuda"), "preload: device must be the ordinal of a CUDA device, got"),
    (lambda: kiln.inspect({}, 80), 'inspect: arch must be a name such as "sm_90a", got 80'),
    (lambda: kiln.enumerate_specs(None), 'arch must be a name such as "sm_90a", got None'),
    (lambda: kiln.gemm_configs(arch=80), 'gemm_configs: arch must be a name such as "sm_90a", got'),
    (lambda: kiln.prewarm({}, "sm_80", recompile=2), "recompile must be True or False, got 2"),
    (lambda: kiln.prewarm({}, "sm_80", check="no"), "prewarm: check must be True or False, got"),
]


CONSTRUCTORS = [
    (lambda: jit.Variant("a", logit="logit"), "argument 'logit'; its name here is 'logits'"),
    (lambda: jit.Variant("a", "logit"), "Variant() takes 1 positional arguments but 2 were given"),
    (lambda: jit.Variant(logits="logit"), "Variant() is missing the argument 'name'"),
    (lambda: jit.Epilogue("a", expr="acc"), "got an unexpected keyword argument 'expr'"),
    (lambda: jit.Epilogue("a"), "Epilogue() is missing the argument 'value'"),
]


@pytest.mark.parametrize(("call", "text"), CONSTRUCTORS, ids=[text for _, text in CONSTRUCTORS])
def test_constructors(call, text):
    with pytest.raises(TypeError) as raised:
        call()
    check(raised.value, TypeError, text)


@pytest.mark.parametrize(("call", "text"), CONTROLS, ids=[text for _, text in CONTROLS])
def test_controls(call, text):
    with pytest.raises(TypeError) as raised:
        call()
    check(raised.value, TypeError, text)


class Nameless:
    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "call",
    [
        lambda: gemm(config=Nameless()),
        lambda: gemm(pdl=Nameless()),
        lambda: attention(window=Nameless()),
        lambda: kiln.set_log(Nameless()),
        lambda: kiln.on_compile(Nameless()),
    ],
)
def test_a_value_without_a_text_is_named_by_its_type(call):
    with kiln.device("emulator:sm_90a"), pytest.raises((TypeError, ValueError)) as raised:
        call()
    check(raised.value, (TypeError, ValueError), ".Nameless")


def test_requires_grad():
    torch = pytest.importorskip("torch")
    q = torch.zeros(1, 8, 2, 64, dtype=torch.float16, requires_grad=True)
    with kiln.device("emulator:sm_90a"), pytest.raises(ValueError) as raised:
        attention(q, q, q)
    check(raised.value, ValueError, "call it under torch.no_grad() or pass tensor.detach()")


def test_compiling_is_off():
    with (
        kiln.device("emulator:sm_86"),
        kiln.no_compile(),
        pytest.raises(kiln.CompileDisabled) as raised,
    ):
        gemm(alpha=2.0, epilogue="acc * 3.5f")
    check(raised.value, kiln.CompileDisabled, "prewarm it with kiln prewarm --arch sm_86 --spec")
    assert json.dumps(raised.value.spec, sort_keys=True, separators=(",", ":")) in str(raised.value)
