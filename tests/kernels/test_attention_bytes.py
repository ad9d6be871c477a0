"""Attention of queries, keys and values of 8 bits: e4m3 or e5m2 alike.

On sm_90a both products multiply bytes, with weights that are rounded to e4m3; the portable kernels
widen queries and keys to f16.
"""

import dataclasses

import pytest
import torch
from attention_case import AttentionCase, judge
from kiln import jit
from storage import DEVICE, F8_DTYPES, randn
from varlen_case import VarlenCase

PREFILL = {"lens_q": (140, 0, 70), "lens_k": (400, 5, 70), "heads": 2, "heads_kv": 1}


def byte_case(**options):
    return VarlenCase(**{"stored": "e4m3", "byte_queries": True, **options})


def path_of(case):
    return case.explain()["path"]


@pytest.mark.parametrize(
    "options",
    [{"keys": "packed", "head_dim": 128}, {"keys": "cache", "head_dim": 64, "stored": "e5m2"},
     {"keys": "paged", "page": 64, "head_dim": 128, "dtype": "f16"},
     {"keys": "paged", "page": 8, "head_dim": 96, "head_dim_v": 48},
     {"keys": "packed", "head_dim": 192, "head_dim_v": 128},
     {"keys": "lists", "page": 16, "head_dim": 256}],
    ids=str,
)  # fmt: skip
def test_prefill(options, device):
    for window in ((-1, -1), (100, 0)):
        case = byte_case(**PREFILL, **options, scales="sequences", window=window)
        case.check()
        if device is not None or torch.cuda.get_device_capability()[0] == 9:
            assert path_of(case) == "sm_90a"


@pytest.mark.parametrize(
    "options",
    [{"page": 1}, {"head_dim": 72}, {"out_scale": 0.05},
     {"op": "kvcache", "leftpad": (3, 0, 9), "lens_q": (70, 70, 70), "lens_k": (400, 75, 90)}],
    ids=str,
)  # fmt: skip
def test_prefill_that_the_portable_kernels_compute(options):
    """Pages of few rows, other head dims, bytes as outputs, and padded pages."""
    case = byte_case(**{**PREFILL, **options}, scales="heads")
    case.check()
    assert path_of(case) != "sm_90a"


@pytest.mark.parametrize("stored", F8_DTYPES)
@pytest.mark.parametrize("keys", ["paged", "packed"])
def test_decode(stored, keys):
    byte_case(stored=stored, keys=keys, scales="one", sinks="f32").check()
    byte_case(stored=stored, keys=keys, lens_q=(3, 9, 1), causal=False, head_dim=128).check()


@pytest.mark.parametrize(
    "options",
    [{"softcap": 3.0, "alibi": "bh"}, {"sinks": "f32", "window": (90, 0)}, {"scale": -0.05},
     {"causal": (1, 0, 1)}, {"num_splits": 1}],
    ids=str,
)  # fmt: skip
def test_options(options):
    byte_case(**PREFILL, **options, keys="packed").check()


@pytest.mark.parametrize("peak", ["sweep", "diagonal", "edges"])
def test_peaks(peak):
    """A key that dominates its row, at every place of a tile."""
    causal = peak == "diagonal"
    byte_case(
        lens_q=(200, 65), lens_k=(333, 200), heads=2, heads_kv=1, keys="packed", peak=peak,
        scale=1.0, causal=causal,
    ).check()  # fmt: skip


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("head_dim,dtype", [(64, "bf16"), (128, "f16")])
def test_tensors_of_one_length(layout, head_dim, dtype):
    """jit.flash_attention takes bytes in both layouts, and scales of each head."""
    given = AttentionCase(batch=2, len_q=150, len_kv=260, heads=4, heads_kv=2, head_dim=head_dim)
    stored = [x.to(torch.float8_e4m3fn) for x in given.inputs()]
    scales = [
        (torch.arange(2, device=DEVICE) + 1.0) * size for size in (0.5, 0.25, 2.0)
    ]  # [heads_kv]
    group = [x.float() for x in stored]
    group[1] = group[1] * (scales[0] * scales[1])[:, None]
    group[2] = group[2] * scales[2][:, None]
    out_dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    swap = layout == "bhsd"
    inputs = [x.transpose(1, 2).contiguous() if swap else x for x in stored]
    out = torch.full_like(inputs[0], float("nan"), dtype=out_dtype)
    result, lse = jit.flash_attention(
        *inputs, causal=True, layout=layout, q_scale=scales[0], k_scale=scales[1],
        v_scale=scales[2], out=out, return_lse=True,
    )  # fmt: skip
    assert result is out
    found = out.transpose(1, 2) if swap else out
    judge(
        f"{layout} {head_dim}", *(x.to(torch.float32) for x in group), found, lse, causal=True,
        weights_dtype=torch.float8_e4m3fn,
    )  # fmt: skip


def test_a_plan_of_a_decode():
    case = byte_case(op="kvcache", lens_q=(1, 1, 1), lens_k=(70, 5, 200), causal=False)
    call = case.call(case.inputs())
    call.run()
    words = {name: call.keywords[name] for name in ("cache_seqlens", "block_table")}
    plan = jit.plan_attention(call.q, call.k, call.v, **words)
    planned = jit.flash_attention_with_kvcache(call.q, call.k, call.v, plan=plan, **words)
    assert torch.equal(planned, call.out.view)


def test_options_of_tensors_of_one_length():
    """Heads first, so that the call is computed with views and options of its own."""
    case = AttentionCase(batch=2, len_q=9, len_kv=90, heads=4, heads_kv=2, alibi="bh", sinks="f32")
    stored = [x.to(torch.float8_e4m3fn) for x in case.inputs()]
    options = case.options()
    out, lse = jit.flash_attention(
        *(x.transpose(1, 2) for x in stored), layout="bhsd", return_lse=True, **options
    )
    exact = (x.to(torch.bfloat16) for x in stored)
    judge("options", *exact, out.transpose(1, 2), lse, weights_dtype=stored[0].dtype, **options)


def test_outputs_are_bfloat16_unless_they_are_given():
    x = randn([1, 70, 2, 64], torch.float32, 1).to(torch.float8_e5m2)
    assert jit.flash_attention(x, x, x).dtype == torch.bfloat16
    used = torch.tensor([70], dtype=torch.int32, device=DEVICE)
    assert jit.flash_attention_with_kvcache(x, x, x, cache_seqlens=used).dtype == torch.bfloat16


def test_relative_error_of_random_inputs():
    """3e-2 of the outputs' RMS, against float32 on the same bytes."""
    case = AttentionCase(batch=1, len_q=300, len_kv=900, heads=2, heads_kv=2, head_dim=128)
    stored = [x.to(torch.float8_e4m3fn) for x in case.inputs(3)]
    out = jit.flash_attention(*stored).float()
    q, k, v = (x.double().transpose(1, 2) for x in stored)
    truth = torch.softmax(q @ k.mT * 128**-0.5, -1) @ v
    error = (out.transpose(1, 2) - truth).square().mean() / truth.square().mean()
    assert error.sqrt() <= 3e-2


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_other_architectures(device, arch):
    with device.on(arch):
        byte_case(**PREFILL, head_dim=64).check()
        byte_case(stored="e5m2").check()


def test_without_splits_a_sequence_does_not_depend_on_others():
    case = byte_case(**PREFILL, keys="packed", num_splits=1, head_dim=128)
    given = case.inputs()
    call = case.call(given)
    call.run()
    alone = dataclasses.replace(case, lens_q=(140,), lens_k=(400,)).call(given[:1])
    alone.run()
    assert torch.equal(alone.queries(alone.out.view, 0), call.queries(call.out.view, 0))


@pytest.mark.parametrize(
    "changes,kind,text",
    [({"k": torch.float8_e5m2}, TypeError, "k must be float8_e4m3fn like q, as queries of 8 bits"),
     ({"out": torch.float32}, TypeError, "out must be bfloat16 or float16 beside q of"),
     ({"attn_mask": torch.bool}, ValueError, "attn_mask must not be given"),
     ({"q": torch.half, "k": torch.half, "v": torch.half, "v_scale": torch.float32}, ValueError,
      "v_scale is of 8-bit q, k and v, and q is float16; leave it out")],
    ids=str,
)  # fmt: skip
def test_refusals(changes, kind, text):
    given = dict.fromkeys("qkv", torch.float8_e4m3fn) | changes
    x = randn([1, 16, 2, 64], torch.float32, 1)
    q, k, v = (x.to(given.pop(name)) for name in "qkv")
    shapes = {"attn_mask": [16, 16], "v_scale": []}
    words = {n: torch.ones(shapes.get(n, x.shape), device=DEVICE).to(d) for n, d in given.items()}
    with pytest.raises(kind) as raised:
        jit.flash_attention(q, k, v, **words)
    assert text in str(raised.value)
