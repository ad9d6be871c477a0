"""A call that is refused is refused with the same words where PyTorch traces it: with fake tensors
and under torch.compile."""

import numpy as np
import pytest
import torch
from kiln import jit
from small_tensors import half, integers
from torch._subclasses import FakeTensorMode

pytestmark = pytest.mark.usefixtures("emulated_torch")


def packed(q, k, **options):
    return jit.flash_attention_varlen(
        q, k, k, cu_seqlens_q=integers(0, 3), cu_seqlens_k=integers(0, 3), max_seqlen_q=3,
        max_seqlen_k=options.pop("max_seqlen_k", 3), **options)  # fmt: skip


def cached(q, k, **options):
    return jit.flash_attention_with_kvcache(q, k, k, cache_seqlens=integers(3), **options)


def planned(q, k):
    return jit.plan_attention(q, k, k, cache_seqlens=integers(3))


VARIANT = jit.Variant("w", params={"c": "f32", "n": "i32"}, logits="logit * c + n")
EPILOGUE = jit.Epilogue("e", params={"t": "f32", "u": "i32"}, value="acc * t + u")
Q, K, A, LOGITS = half(1, 8, 2, 64), half(3, 2, 64), half(16, 16), torch.randn(4, 8)
PAIRS = integers([0, 1], [2, 3])

VALUES = {
    "causal=1": lambda: jit.flash_attention(Q, Q, Q, causal=1),
    "causal=None": lambda: jit.flash_attention(Q, Q, Q, causal=None),
    "causal=1 packed": lambda: packed(K, K, causal=1),
    "return_lse=1": lambda: jit.flash_attention(Q, Q, Q, return_lse=1),
    "is_causal=1": lambda: jit.scaled_dot_product_attention(Q, Q, Q, is_causal=1),
    "dropout_p=True": lambda: jit.scaled_dot_product_attention(Q, Q, Q, dropout_p=True),
    "trans_a=1": lambda: jit.gemm(A, A, trans_a=1),
    "scale=True": lambda: jit.flash_attention(Q, Q, Q, scale=True),
    "sdpa scale=True": lambda: jit.scaled_dot_product_attention(Q, Q, Q, scale=True),
    "alpha=True": lambda: jit.gemm(A, A, alpha=True),
    "alpha=None": lambda: jit.gemm(A, A, alpha=None),
    "group=True": lambda: jit.quantize(A, group=True),
    "top_k=True": lambda: jit.moe_route(LOGITS, top_k=True),
    "max_seqlen_k=3.0": lambda: packed(K, K, max_seqlen_k=3.0),
    "window=2.0": lambda: jit.flash_attention(Q, Q, Q, window=(2.0, 0)),
    "window of 3": lambda: jit.flash_attention(Q, Q, Q, window=(1, 2, 3)),
    "params t=True": lambda: jit.gemm(A, A, epilogue="acc * t", params={"t": True}),
    "params a list": lambda: jit.gemm(A, A, epilogue="acc * t", params=[1.0]),
    "params t:x": lambda: jit.gemm(A, A, epilogue="acc * t", params={"t:x": 1.0}),
    "variant c=True": lambda: jit.flash_attention(Q, Q, Q, variant=VARIANT(c=True, n=3)),
    "variant n=3.0": lambda: jit.flash_attention(Q, Q, Q, variant=VARIANT(c=0.5, n=3.0)),
    "epilogue t=True": lambda: jit.gemm(A, A, epilogue=EPILOGUE(t=True, u=1)),
    "epilogue u=True": lambda: jit.gemm(A, A, epilogue=EPILOGUE(t=1.0, u=True)),
}
SHAPES = {
    "plan: no heads": ((half(1, 1, 4, 64), half(1, 8, 0, 64)), planned),
    "quantize: group=0": ((A,), lambda x: jit.quantize(x, group=0)),
    "quantize: gates": ((half(4, 63),), lambda x: jit.quantize(x, activation="swiglu")),
    "quantize: 0-d": ((half(),), jit.quantize),
    "gemm: a": ((half(64), half(64, 8)), jit.gemm),
    "gemm: b": ((half(8, 64), half(64)), jit.gemm),
    "gemm: gates": ((half(8, 64), half(64, 9)), lambda a, b: jit.gemm(a, b, activation="swiglu")),
    "permute: x": ((half(4), PAIRS), lambda x, e: jit.moe_permute(x, e, num_experts=4)),
    "permute: experts": (
        (half(4, 8), integers(0, 1)), lambda x, e: jit.moe_permute(x, e, num_experts=4)
    ),
    "permute: -1": ((half(2, 8), PAIRS), lambda x, e: jit.moe_permute(x, e, num_experts=-1)),
    "permute: 513": ((half(2, 8), PAIRS), lambda x, e: jit.moe_permute(x, e, num_experts=513)),
    "unpermute: y": ((half(4), PAIRS), jit.moe_unpermute),
    "unpermute: inverse": ((half(4, 8), integers(0, 1)), jit.moe_unpermute),
    "route: -1": ((LOGITS,), lambda x: jit.moe_route(x, top_k=-1)),
    "route: 33": ((torch.randn(4, 64),), lambda x: jit.moe_route(x, top_k=33)),
    "route: logits": ((torch.randn(4),), lambda x: jit.moe_route(x, top_k=1)),
    "attention: 3-d": ((K,), lambda q: jit.flash_attention(q, q, q, return_lse=True)),
    "attention: v": ((Q, half(64)), lambda q, v: jit.flash_attention(q, q, v)),
    "packed: 4-d": ((Q, K), lambda q, k: packed(q, k, return_lse=True)),
    "cached: 3-d": ((K, Q), lambda q, k: cached(q, k, return_lse=True)),
    "cached: keys": ((Q, half(64)), cached),
    "sdpa: 1-d": ((half(64),), lambda q: jit.scaled_dot_product_attention(q, q, q)),
    "merge: outs": ((torch.randn(2, 3), torch.randn(2, 3, 4)), jit.merge_states),
    "rms_norm: 0-d": ((half(),), jit.rms_norm),
    "layer_norm: 0-d": ((half(),), jit.layer_norm),
}  # fmt: skip


def refused(function, *arguments):
    with pytest.raises((TypeError, ValueError)) as error:
        function(*arguments)
    return type(error.value), str(error.value)


def assert_compiled_says(message, function, *arguments):
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception) as error:
        compiled(*arguments)
    said = str(error.value).replace("\\'", "'")
    assert message in said, said


@pytest.mark.parametrize("call", VALUES.values(), ids=list(VALUES))
def test_values(call):
    _, message = refused(call)
    assert " must " in message or " cannot " in message
    assert_compiled_says(message, call)


@pytest.mark.parametrize("call", [VALUES["causal=1"], VALUES["variant c=True"]])
def test_values_beside_fake_tensors(call, monkeypatch):
    expected = refused(call)
    with FakeTensorMode() as mode:
        monkeypatch.setitem(globals(), "Q", mode.from_tensor(Q))
        assert refused(call) == expected


@pytest.mark.parametrize(("tensors", "call"), SHAPES.values(), ids=list(SHAPES))
def test_shapes(tensors, call):
    kind, message = refused(call, *tensors)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(x) for x in tensors]
        assert refused(call, *fake) == (kind, message)
    assert_compiled_says(message, call, *tensors)


@pytest.mark.parametrize(
    "dtype",
    ["f32", "float", "torch.bf16", "half", torch.float32, np.float32, np.dtype("float16"), float],
    ids=str,
)
def test_dtypes_and_their_names(dtype):
    eager = jit.gemm(A, A, out_dtype=dtype)
    with FakeTensorMode() as mode:
        a = mode.from_tensor(A)
        assert jit.gemm(a, a, out_dtype=dtype).dtype == eager.dtype


@pytest.mark.parametrize("dtype", ["float8_e5m2", "torch.float8_e4m3fn", torch.float8_e5m2])
def test_dtypes_of_quantize(dtype):
    eager, _ = jit.quantize(A, out_dtype=dtype)
    with FakeTensorMode() as mode:
        assert jit.quantize(mode.from_tensor(A), out_dtype=dtype)[0].dtype == eager.dtype


@pytest.mark.parametrize("dtype", ["float15", "torch.torch.float16", torch.complex64, np.int16, 3])
def test_what_is_no_dtype(dtype):
    expected = refused(lambda: jit.gemm(A, A, out_dtype=dtype))
    with FakeTensorMode() as mode:
        a = mode.from_tensor(A)
        assert refused(lambda: jit.gemm(a, a, out_dtype=dtype)) == expected


def test_symbols_are_numbers_and_flags():
    def attend(q, a):
        rows = q.shape[1]
        options = dict(causal=rows > 3, window=(rows - 1, 0), scale=rows**-0.5)
        variant = VARIANT(c=rows, n=rows)
        return (
            jit.flash_attention(q, q, q, **options),
            jit.flash_attention(q, q, q, variant=variant),
            jit.gemm(a, a, alpha=rows, epilogue="acc * t + u", params={"t": rows**0.5, "u": rows}),
        )

    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (8, 11):
        q = half(1, rows, 2, 64)
        for ours, eager in zip(compiled(q, A), attend(q, A)):
            assert torch.equal(ours, eager)
