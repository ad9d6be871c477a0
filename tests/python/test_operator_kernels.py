"""The C++ kernels of torch.ops.kiln.* beside those in Python, which stay where PyTorch takes no
others."""

import contextlib
import ctypes
import threading

import kiln
import moe_calls
import pytest
import torch
from kiln import _core, jit, operators

# The same operators with nothing but their kernels in Python.
PYTHON_LIBRARY = torch.library.Library("kiln_in_python", "DEF")
IN_PYTHON = operators.register(PYTHON_LIBRARY, native="libc.so.6")
native, python = torch.ops.kiln, torch.ops.kiln_in_python


@pytest.fixture(autouse=True)
def emulated():
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        torch.manual_seed(0)
        yield


def half(*shape):
    return torch.randn(shape).half()


def attention(**changes):
    q, k = half(1, 8, 4, 32), half(1, 12, 2, 32)
    return {"q": q, "k": k, "v": k.clone(), **changes}


def packed(**changes):
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    return {
        "q": half(8, 4, 32), "k": half(8, 2, 32), "v": half(8, 2, 32), "cu_seqlens_q": starts,
        "cu_seqlens_k": starts.clone(), "max_seqlen_q": 5, "max_seqlen_k": 5, **changes,
    }  # fmt: skip


def cached(**changes):
    lengths = torch.tensor([3, 5], dtype=torch.int32)
    return {"q": half(2, 1, 4, 32), "k_cache": half(2, 6, 2, 32), "v_cache": half(2, 6, 2, 32),
            "cache_seqlens": lengths, **changes}  # fmt: skip


def plan_of_cached(**changes):
    given = cached(**changes)
    return {"q": given.pop("q"), "k": given.pop("k_cache"), "v": given.pop("v_cache"), **given}


PLAN = torch.zeros(1 << 15, dtype=torch.int32)
PAGES = torch.tensor([[1, 0], [0, 1]], dtype=torch.int32)


def sdpa(**changes):
    q = half(2, 4, 8, 32)
    return {"query": q, "key": q.clone(), "value": q.clone(), **changes}


def gemm(**changes):
    return {"a": half(8, 32), "b": half(32, 48), **changes}


def norm(**changes):
    return {"x": half(3, 4, 40), "weight": torch.rand(40), **changes}


WRITTEN = ("out", "lse", "residual_out", "scale_out", "offsets", "inverse", "weights", "experts")


def outcome(operators_of, name, arguments):
    """The result, or the error as users see it."""
    try:
        result = getattr(operators_of, name)(**arguments)
    except Exception as error:
        return type(error), str(error), sorted(vars(error))
    tensors = result if isinstance(result, tuple) else (result,)
    written = [arguments[key] for key in WRITTEN if key in arguments]
    return [(t.dtype, t.stride(), t.tolist()) for t in (*tensors, *written) if t is not None]


def merge(**given):
    return {"outs": half(2, 8, 4, 40), "lses": torch.rand(2, 4, 8), **given}


def append(**given):
    caches = {name: torch.zeros(3, 4, 2, 32).half() for name in ("k_cache", "v_cache")}
    return {"key": half(5, 2, 32), "value": half(5, 2, 32), "slot_mapping": torch.arange(5),
            **caches, **given}  # fmt: skip


def tables(**given):
    return {"positions": torch.arange(5), "cos": torch.rand(9, 16), "sin": torch.rand(9, 16),
            **given}  # fmt: skip


def test_who_has_which_kernel():
    assert "CPU" in operators.NATIVE and IN_PYTHON == ()
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    for name, *_ in operators.SCHEMAS:
        for key in operators.NATIVE:
            assert has_kernel(f"kiln::{name}", key), (name, key)
            assert not has_kernel(f"kiln_in_python::{name}", key), (name, key)


def test_kernels_refuse_what_pytorch_did_not_resolve():
    # PyTorch resolves the negative bit before it calls a kernel, unless it is told not to.
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Negative)
    negative = torch._neg_view(torch.rand(8, 1))
    with torch._C._ExcludeDispatchKeyGuard(keys):
        for operators_of in (native, python):
            with pytest.raises(TypeError, match="scale_a is a view that PyTorch negates"):
                operators_of.gemm(**gemm(scale_a=negative))
    arguments = gemm(scale_a=negative)
    resolved = native.gemm(**{**arguments, "scale_a": negative.resolve_neg()})
    assert torch.equal(native.gemm(**arguments), resolved)


def test_a_libtorch_that_is_not_loaded_or_lacks_the_functions_registers_nothing():
    for library in ("libabsent.so", "libc.so.6", "libc10.so"):
        assert _core.register_torch_kernels("kiln_absent", library) == []


BYTES = {
    name: half(1, rows, heads, 32).to(torch.float8_e4m3fn)
    for name, rows, heads in (("q", 8, 4), ("k", 12, 2), ("v", 12, 2))
}


CALLS = [
    ("flash_attention", attention()),
    ("flash_attention", attention(causal=True, window=[5, 0], softcap=10.0, scale=0.5)),
    ("flash_attention", attention(sinks=torch.ones(4), alibi_slopes=torch.rand(4))),
    ("flash_attention", attention(attn_mask=torch.rand(1, 1, 8, 12) > 0.3)),
    ("flash_attention", attention(attn_mask=torch.rand(1, 4, 1, 12).half(), layout="bshd")),
    ("flash_attention", attention(**BYTES, k_scale=torch.rand(2))),
    ("flash_attention_lse", attention(causal=True)),
    ("flash_attention_lse", attention(causal=True, top_left=True)),
    (
        "flash_attention_lse",
        {key: half(1, 2, 8, 16) for key in "qkv"} | {"layout": "bhsd", "alibi_slopes": None},
    ),
    ("flash_attention_out", attention(out=half(1, 8, 4, 32), lse=torch.ones(1, 4, 8))),
    ("flash_attention_out", attention(out=half(1, 8, 4, 64)[..., :32])),
    ("flash_attention_varlen", packed()),
    ("flash_attention_varlen", packed(causal=True, window=[2, 0], softcap=10.0, scale=0.5)),
    ("flash_attention_varlen", packed(sinks=torch.ones(4), alibi_slopes=torch.rand(2, 4))),
    ("flash_attention_varlen", packed(k=half(2, 6, 2, 32), v=half(2, 6, 2, 32), cu_seqlens_k=None,
                                      seqused_k=PAGES[0] + 4, num_splits=1)),
    ("flash_attention_varlen_lse", packed(k=half(2, 6, 2, 32), v=half(2, 6, 2, 32),
                                          block_table=PAGES, causal=True)),
    ("flash_attention_varlen_out", packed(out=half(8, 4, 32), lse=torch.ones(4, 8))),
    ("flash_attention_with_kvcache", cached()),
    ("flash_attention_with_kvcache_lse", cached(block_table=PAGES, causal=True, num_splits=1)),
    ("flash_attention_with_kvcache_out", cached(out=half(2, 1, 4, 32))),
    ("plan_attention_out", packed(softcap=10.0, causal=True, plan=PLAN.clone())),
    ("plan_attention_out", plan_of_cached(alibi_slopes=torch.rand(4), plan=PLAN.clone())),
    ("plan_attention_out", packed(num_splits=1, plan=PLAN.clone())),
    ("flash_attention_with_kvcache", cached(plan=torch.zeros(1, dtype=torch.int32))),
    ("scaled_dot_product_attention", sdpa()),
    ("scaled_dot_product_attention", sdpa(is_causal=True, scale=0.3)),
    ("scaled_dot_product_attention", sdpa(attn_mask=torch.rand(1, 8) > 0.2)),
    ("scaled_dot_product_attention", sdpa(key=half(2, 2, 8, 32), value=half(2, 2, 8, 32),
                                          enable_gqa=True)),
    ("gemm", gemm()),
    ("gemm", gemm(bias=half(48), activation="gelu", residual=half(8, 48), alpha=0.5)),
    ("gemm", gemm(a=half(3, 32, 8), trans_a=True, out_dtype=torch.float32)),
    ("gemm", gemm(b=half(48, 32), trans_b=True, activation="swiglu", gate="interleaved")),
    ("gemm", gemm(scale_a=torch.rand(8, 1), scale_b=torch.rand(1, 48), epilogue="acc + row")),
    ("gemm", gemm(a=torch.rand(8, 32), b=torch.rand(32, 48), precision="tf32")),
    ("gemm", gemm(accumulator="float16", config=[64, 128, 64, 9, 0, 2])),
    ("gemm_out", gemm(out=torch.zeros(8, 48), scale_a=torch.rand(1))),
    ("gemm", gemm(pdl="on")),
    ("gemm_out", gemm(out=torch.zeros(8, 48), pdl="weights")),
    ("gemm", gemm(b=torch._neg_view(half(32, 48)))),
    ("rms_norm", norm()),
    ("rms_norm", norm(weight=None, eps=0.5, activation="silu", out_dtype=torch.float32)),
    ("rms_norm", norm(x=half(3, 4, 80)[..., :40], weight_offset=1.0, residual=half(3, 4, 40))),
    ("rms_norm", norm(x=half(1, 65536), weight=None)),
    ("rms_norm_out", norm(out=half(3, 4, 40), residual=half(3, 4, 40),
                          residual_out=half(3, 4, 40))),
    ("rms_norm_out", norm(out=torch.rand(3, 4, 40))),
    ("layer_norm", norm(bias=half(40))),
    ("layer_norm", norm(weight=None, bias=torch.rand(40), activation="gelu",
                        residual=half(3, 4, 40))),
    ("layer_norm_out", norm(out=torch.rand(3, 4, 40), bias=half(40))),
    ("merge_states", merge()),
    ("merge_states_lse", merge(base="2", layout="th", lses=torch.rand(2, 8, 4))),
    ("merge_states_lse", merge(sinks=torch.rand(4), outs=torch.rand(2, 8, 4, 48)[..., :40])),
    ("merge_states_out", merge(out=torch.rand(8, 4, 40), lse=torch.rand(4, 8))),
    ("merge_states_out", merge(out=half(8, 4, 40))),
    ("append_kv", append()),
    ("append_kv", append(**tables(), interleaved=True, k_weight=torch.rand(32), eps=0.5)),
    ("append_kv", append(**tables(cos=half(9, 8), sin=half(9, 8)), query=half(5, 4, 32),
                         query_out=half(5, 4, 32), q_weight=half(32))),
    ("append_kv", append(k_cache=torch.zeros(3, 4, 2, 32, dtype=torch.int8), k_scale=torch.rand(2),
                         v_cache=torch.zeros(3, 4, 2, 32, dtype=torch.int8),
                         v_scale=torch.tensor(0.1))),
    *moe_calls.CALLS,
    # Of kernels in Python under both names.
    ("flash_attention", attention(k=half(1, 12, 2, 32).to_sparse())),
    # Refusals.
    ("flash_attention", attention(window=[1])),
    ("flash_attention", attention(window=[-2, 0])),
    ("flash_attention", attention(layout="sbhd")),
    ("flash_attention", attention(top_left=True)),
    ("flash_attention", attention(attn_mask=torch.ones(8, 12))),
    ("flash_attention", attention(softcap=-1.0)),
    ("flash_attention", attention(sinks=torch.zeros(3))),
    ("flash_attention", attention(v=torch.zeros(1, 12, 2, 32))),
    ("flash_attention", attention(q=half(8, 4, 32))),
    ("flash_attention", attention(q=half(1, 1, 1, 1, 1, 1))),
    ("flash_attention", attention(q=half(1, 8, 4, 32).to(torch.complex64))),
    ("flash_attention_out", attention(out=half(1, 8, 4, 16))),
    ("flash_attention_out", attention(out=torch.zeros(1, 8, 4, 32))),
    ("flash_attention_varlen", packed(cu_seqlens_k=None)),
    ("flash_attention_varlen", packed(max_seqlen_q=-1)),
    ("flash_attention_varlen", packed(num_splits=3)),
    ("flash_attention_varlen", packed(block_table=PAGES)),
    ("flash_attention_varlen_out", packed(out=half(8, 4, 16))),
    ("flash_attention_with_kvcache", cached(cache_seqlens=torch.ones(2))),
    ("flash_attention_with_kvcache", cached(k_cache=half(3, 6, 2, 32))),
    ("plan_attention", packed(cache_leftpad=PAGES[0])),
    ("plan_attention", plan_of_cached(max_seqlen_k=8)),
    ("plan_attention", plan_of_cached(cache_seqlens=None)),
    ("plan_attention_out", packed(plan=torch.zeros(1 << 14))),
    ("plan_attention_out", packed(plan=PLAN[1:])),
    ("scaled_dot_product_attention", sdpa(dropout_p=0.1)),
    ("scaled_dot_product_attention", sdpa(dropout_p=1.0)),
    ("scaled_dot_product_attention", sdpa(attn_mask=half(8, 8), is_causal=True)),
    ("gemm", gemm(b=None)),
    ("gemm", gemm(b=torch.zeros(32, 48, dtype=torch.int16))),
    ("gemm", gemm(b=torch.zeros(32, 48, dtype=torch.float8_e4m3fnuz))),
    ("gemm", gemm(b=torch.zeros(32, 48).to(torch.float8_e8m0fnu))),
    ("gemm", gemm(b=half(31, 48))),
    ("gemm", gemm(a=torch.rand(8, 32), b=torch.rand(32, 48))),
    ("gemm", gemm(activation="tanh")),
    ("gemm", gemm(gate="quarters")),
    ("gemm", gemm(precision="high")),
    ("gemm", gemm(accumulator="int8")),
    ("gemm", gemm(accumulator="float64")),
    ("gemm", gemm(pdl="always")),
    ("gemm", gemm(out_dtype=torch.int8)),
    ("gemm", gemm(out_dtype=torch.float8_e5m2)),
    ("gemm", gemm(config=[1, 2, 3, 4])),
    ("gemm", gemm(config=[1, 2, 3])),
    ("gemm", gemm(config=[64, 128, 64, 2**40])),
    ("gemm", gemm(epilogue="acc +")),
    ("gemm_out", gemm(out=half(8, 47))),
    ("rms_norm", norm(weight=half(39))),
    ("rms_norm", norm(activation="swiglu")),
    ("rms_norm", norm(eps=float("nan"))),
    ("rms_norm", norm(residual=torch.rand(3, 4, 40))),
    ("rms_norm", norm(out_dtype=torch.int8)),
    ("rms_norm_out", norm(out=half(3, 4, 40), residual_out=half(3, 4, 40))),
    ("layer_norm", norm(bias=half(1, 40))),
    ("layer_norm", norm(x=torch.zeros(3, 40, dtype=torch.int32))),
    ("layer_norm_out", norm(out=half(3, 40))),
    ("gemm_out", gemm(out=half(8, 48), out_dtype=torch.float32)),
    ("merge_states", merge(base="10")),
    ("merge_states", merge(layout="td")),
    ("merge_states", merge(lses=torch.rand(2, 8, 4))),
    ("merge_states_lse", merge(outs=half(2, 8, 40))),
    ("merge_states_out", merge(out=half(8, 4, 40), lse=torch.rand(8, 4))),
    ("append_kv", append(slot_mapping=torch.arange(6))),
    ("append_kv", append(v_cache=torch.zeros(3, 4, 2, 32))),
    ("append_kv", append(**tables(sin=None))),
    ("append_kv", append(eps=float("inf"))),
]  # fmt: skip


@pytest.mark.parametrize("name, arguments", CALLS)
def test_both_kernels_give_the_same(name, arguments):
    def own():  # what is written to
        given = {k: arguments[k] for k in WRITTEN if arguments.get(k) is not None}
        return {**arguments, **{k: tensor.clone() for k, tensor in given.items()}}

    assert outcome(native, name, own()) == outcome(python, name, own())


def test_the_types_and_parts_of_errors():
    refused = [("window", [1], TypeError), ("window", [-2, 0], ValueError)]
    for option, value, error in refused:
        with pytest.raises(error, match=f"flash_attention: {option} must"):
            native.flash_attention(**attention(**{option: value}))
    with pytest.raises(kiln.CompileError) as compiling:
        native.gemm(**gemm(epilogue="acc +"))
    assert "expected an expression" in compiling.value.log
    with kiln.no_compile(), pytest.raises(kiln.CompileDisabled) as disabled:
        native.gemm(**gemm(epilogue="acc * 3.125f"))
    assert disabled.value.spec["op"] == "gemm"
    with kiln.device("cuda"), pytest.raises(TypeError, match="q is in host memory"):
        native.flash_attention(**attention())


def test_grad_mode():
    arguments = attention()
    with torch.enable_grad():
        expected = outcome(python, "flash_attention", arguments)
        assert outcome(native, "flash_attention", arguments) == expected
        for name in "qkv":
            leaf = arguments[name].clone().requires_grad_()
            for tensor in (leaf, leaf * 2):
                with pytest.raises(ValueError, match=f"{name} requires grad"):
                    native.flash_attention(**{**arguments, name: tensor})
    parameter = torch.nn.Parameter(arguments["q"])
    assert outcome(native, "flash_attention", {**arguments, "q": parameter}) == expected
    with torch.inference_mode():
        assert outcome(native, "flash_attention", arguments) == expected


def test_a_subclass_that_owns_its_memory_is_a_tensor():
    """As for PyTorch's own operators; kiln.jit, which sees types alone, refuses it."""

    class Named(torch.Tensor):
        pass

    arguments = attention()
    named = {**arguments, "q": arguments["q"].as_subclass(Named)}
    assert torch.equal(native.flash_attention(**named), native.flash_attention(**arguments))
    with pytest.raises(TypeError, match="a subclass of"):
        jit.flash_attention(*named.values())


def test_threads_compute_at_once():
    arguments = attention(causal=True)
    expected = native.flash_attention(**arguments)
    results = []

    def compute():
        with kiln.device("emulator:sm_90a"), torch.no_grad():
            results.extend(native.flash_attention(**arguments) for _ in range(20))

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80 and all(torch.equal(result, expected) for result in results)


class Mallinfo(ctypes.Structure):
    """Ten sizes, of which the eighth tells the bytes in use."""

    _fields_ = [("before", ctypes.c_size_t * 7), ("in_use", ctypes.c_size_t),
                ("after", ctypes.c_size_t * 2)]  # fmt: skip


def bytes_in_use():
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    return mallinfo().in_use


EVERYTHING = [
    ("flash_attention_lse", lambda: attention(q=half(1, 0, 4, 32), window=[4, 0], scale=0.5,
                                              sinks=torch.ones(4), alibi_slopes=torch.ones(4))),
    ("flash_attention", lambda: attention(q=half(1, 0, 4, 32), causal=True, top_left=True,
                                          attn_mask=torch.rand(1, 1, 0, 12) > 0.5)),
    ("flash_attention", lambda: attention(scale=0.5, sinks=torch.ones(3),
                                          alibi_slopes=torch.ones(4))),
    ("flash_attention_out", lambda: attention(q=half(1, 0, 4, 32), out=half(1, 0, 4, 32),
                                              lse=torch.ones(1, 4, 0))),
    ("flash_attention_varlen_lse", lambda: packed(window=[4, 0], scale=0.5,
                                                  sinks=torch.ones(3), seqused_k=PAGES[0],
                                                  alibi_slopes=torch.ones(4))),
    ("flash_attention_varlen", lambda: packed(num_splits=2, scale=0.5)),
    ("flash_attention_with_kvcache_out", lambda: cached(q=half(2, 0, 4, 32), block_table=PAGES,
                                                        out=half(2, 0, 4, 32))),
    ("scaled_dot_product_attention", lambda: sdpa(query=half(2, 4, 0, 32), scale=0.5,
                                                  attn_mask=torch.rand(0, 8) > 0.5)),
    ("scaled_dot_product_attention", lambda: sdpa(attn_mask=half(8, 8), scale=0.5, dropout_p=0.5)),
    ("gemm", lambda: gemm(a=half(0, 32), bias=half(48), activation="gelu", residual=half(0, 48),
                          scale_a=torch.ones(1), scale_b=torch.ones(1), out_dtype=torch.float32)),
    ("gemm", lambda: gemm(gate="a gate of a name that is long enough for a string on the heap",
                          activation="swiglu", precision="tf32", epilogue="acc",
                          config=[64, 128, 64, 9, 0, 2], out_dtype=torch.float16)),
    ("gemm_out", lambda: gemm(a=half(0, 32), out=half(0, 48))),
]  # fmt: skip


@pytest.mark.parametrize("name, make", EVERYTHING)
def test_no_call_leaks(name, make):
    """Of every kind of argument, refused or not: not one byte a call."""
    arguments, operator = make(), getattr(native, name)

    def call(times):
        for _ in range(times):
            with contextlib.suppress(ValueError):
                operator(**arguments)

    call(200)
    before = bytes_in_use()
    call(3000)
    assert bytes_in_use() - before < 3000
