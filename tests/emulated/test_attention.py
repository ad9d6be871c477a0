"""Attention on the emulated device in small sizes: the public API on CPU tensors and NumPy arrays,
in every order of asynchronous work, warps and blocks, against float64."""

import dataclasses
import itertools
import math

import kiln
import numpy as np
import pytest
import torch
from attention_case import OPTIONS, AttentionCase, CaseGroup, judge
from conftest import ARCH
from kiln import jit
from storage import place, randn

pytestmark = pytest.mark.usefixtures("compiled", "order")

HEAD_DIMS = [(d, d) for d in (8, 16, 40, 64, 80, 96, 112, 128, 160, 192, 256)] + [
    (192, 128),
    (64, 128),
    (128, 64),
]
MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (20, 0)},
}
LENGTHS = [(1, 1), (7, 7), (63, 65), (65, 63), (1, 150), (70, 7)]


def shape_groups():
    for at, (dim, dim_v) in enumerate(HEAD_DIMS):
        for kind, (name, mask) in enumerate(MASKS.items()):
            if kind == at % 3:
                continue  # two of three masks for a head dim
            dtype = ("f16", "bf16")[(at + kind) % 2]
            cases = tuple(
                AttentionCase(
                    dtype=dtype, head_dim=dim, head_dim_v=dim_v, len_q=len_q, len_kv=len_kv,
                    batch=1 + i % 2, heads=1 + i % 2, **mask,
                )
                for i, (len_q, len_kv) in enumerate(LENGTHS)
            )  # fmt: skip
            yield CaseGroup(f"{dtype}-d{dim}x{dim_v}-{name}", cases)


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_head_dims_and_lengths(group):
    group.check()


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"ratio{ratio}",
            tuple(
                AttentionCase(
                    len_q=33, len_kv=50, heads=ratio * heads_kv, heads_kv=heads_kv, **mask
                )
                for heads_kv in (1, 2)
                for mask in MASKS.values()
            ),
        )
        for ratio in (1, 3, 4, 8)
    ],
    ids=str,
)
def test_head_ratios(group):
    group.check()


WINDOWS = [
    (0, 0), (1, 0), (16, 0), (0, 5), (-1, 3), (63, 0), (64, 64), (500, 500), (-1, 0), (0, -1),
    (2**31 - 1, 2**31 - 1),
]  # fmt: skip


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"window{left},{right}" + ("-causal" if causal else ""),
            tuple(
                AttentionCase(window=(left, right), causal=causal, len_q=len_q, len_kv=len_kv)
                for len_q, len_kv in [(100, 100), (35, 150), (90, 20)]
            ),
        )
        for left, right in WINDOWS
        for causal in (False, True)
    ],
    ids=str,
)
def test_windows(group):
    group.check()


OPTIONS = {
    **OPTIONS,
    "all": {"softcap": 8.0, "alibi": "bh", "sinks": "bf16", "causal": True, "window": (40, 0)},
    "gpt-oss": {"sinks": "bf16", "window": (31, 0), "causal": True},
    "gemma": {"softcap": 50.0, "window": (25, 0), "causal": True, "scale": 144**-0.5},
}


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            name,
            tuple(
                AttentionCase(
                    dtype=("f16", "bf16")[i % 2], batch=2, heads=4, heads_kv=2, len_q=len_q,
                    len_kv=len_kv, **{"causal": causal, **options},
                )
                for len_q, len_kv, causal in [(40, 40, False), (33, 97, True), (80, 29, True)]
            ),
        )
        for i, (name, options) in enumerate(OPTIONS.items())
    ],
    ids=str,
)  # fmt: skip
def test_options(group):
    group.check()


STORAGES = ["plain", "guarded", "permuted", "head_slice", "offset", "odd"]


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"{layout}-{storage}",
            tuple(
                AttentionCase(
                    layout=layout, storage=storage, out_storage=out, batch=2, heads=4,
                    heads_kv=2, head_dim=dim, len_q=30, len_kv=71, causal=True,
                )
                for out in STORAGES
            ),
        )
        for layout, dim in (("bshd", 64), ("bhsd", 72))
        for storage in STORAGES
    ],
    ids=str,
)  # fmt: skip
def test_layouts_and_strides(group):
    group.check()


EDGES = {
    "no-keys": AttentionCase(len_q=70, len_kv=0),
    "no-keys-causal": AttentionCase(len_q=5, len_kv=0, causal=True),
    "no-keys-all-options": AttentionCase(
        len_q=70, len_kv=0, softcap=5.0, alibi="h", sinks="f32", window=(3, 3)
    ),
    "no-queries": AttentionCase(len_q=0, len_kv=70),
    "no-batch": AttentionCase(batch=0),
    "nothing": AttentionCase(len_q=0, len_kv=0),
    "leading-rows-empty": AttentionCase(len_q=150, len_kv=40, causal=True),
    "leading-rows-empty-sinks": AttentionCase(len_q=150, len_kv=40, causal=True, sinks="f32"),
    "one-key": AttentionCase(len_q=100, len_kv=1, causal=True),
    "only-the-last-row-sees": AttentionCase(len_q=129, len_kv=1, window=(0, 0)),
    "window-misses-all": AttentionCase(len_q=200, len_kv=10, window=(-1, 0)),
}


@pytest.mark.parametrize(
    "group", [CaseGroup(name, (case,)) for name, case in EDGES.items()], ids=str
)
def test_edges(group):
    group.check()


def peak_groups():
    masks = {
        "full": ({}, ["sweep", "first", "last"]),
        "causal": ({"causal": True}, ["diagonal", "beyond", "first", "sweep"]),
        "window": ({"window": (33, 0)}, ["left_edge", "beyond_left", "diagonal", "beyond"]),
        "two-sided": ({"window": (40, 31)}, ["left_edge", "beyond_left", "beyond"]),
    }
    for dtype, dim in [("f16", 64), ("bf16", 128)]:
        for mask, (options, peaks) in masks.items():
            case = AttentionCase(dtype=dtype, head_dim=dim, scale=1.0, **options)
            cases = tuple(
                dataclasses.replace(case, peak=peak, len_q=len_q, len_kv=len_kv)
                for peak in peaks
                for len_q, len_kv in [(130, 130), (65, 150), (90, 40)]
            )
            yield CaseGroup(f"{dtype}-d{dim}-{mask}", cases)


@pytest.mark.parametrize("group", list(peak_groups()), ids=str)
def test_peaks(group):
    """One key takes all the weight of a row: one lost or extra key shows."""
    group.check()


def test_keys_that_no_query_sees_may_be_nan():
    case = AttentionCase(len_q=5, len_kv=150, window=(20, 0), storage="guarded")
    q, k, v = case.inputs()
    out, lse = case.outputs()
    k[:, :125] = math.nan
    v[:, :125] = math.nan
    jit.flash_attention(q, k, v, out=out.view, lse=lse, window=(20, 0))
    judge("unseen NaN", q, k[:, 125:], v[:, 125:], out, lse, window=(20, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("extreme", [6e4, -6e4])
def test_extreme_logits(dtype, extreme):
    q, k = torch.zeros([1, 70, 1, 64]), torch.zeros([1, 70, 1, 64])
    q[..., 0] = 128.0
    k[..., 0] = float(round(extreme / 128))
    k[:, ::3, :, 0] += 1 if dtype == torch.float16 else 2
    q, k = q.to(dtype), k.to(dtype)
    v = randn([1, 70, 1, 64], dtype, 3)
    out, lse = jit.flash_attention(q, k, v, scale=1.0, return_lse=True)
    judge(f"logits near {extreme}", q, k, v, out, lse, scale=1.0)


def test_heads_of_one_packed_tensor():
    q, k, v = randn([2, 50, 3, 3, 64], torch.bfloat16, 1).unbind(2)
    out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    judge("packed", q, k, v, out, lse, causal=True)


def test_batch_and_heads_broadcast_by_stride_zero():
    q = randn([3, 40, 4, 64], torch.bfloat16, 1)
    k = randn([1, 50, 1, 64], torch.bfloat16, 2).expand(3, 50, 2, 64)
    v = randn([1, 50, 1, 64], torch.bfloat16, 3).expand(3, 50, 2, 64)
    out, lse = jit.flash_attention(q, k, v, return_lse=True)
    judge("broadcast", q, k, v, out, lse)


def test_an_lse_with_a_batch_stride():
    case = AttentionCase(batch=2, len_q=64, len_kv=30)
    q, k, v = case.inputs()
    out, _ = case.outputs()
    lse = place("guarded", [2, 2, 64], torch.float32)
    jit.flash_attention(q, k, v, out=out.view, lse=lse.view)
    judge("strided lse", q, k, v, out, lse.view)
    lse.check_untouched("strided lse")


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (9, 0), "softcap": 4.0}])
def test_numpy_arrays(options):
    q, k, v = AttentionCase(dtype="f16", batch=2, len_q=45, len_kv=77).inputs()
    arrays = [x.numpy() for x in (q, k, v)]
    out, lse = jit.flash_attention(*arrays, return_lse=True, **options)
    assert type(out) is np.ndarray and out.dtype == np.float16 and lse.dtype == np.float32
    judge("NumPy", q, k, v, torch.from_numpy(out), torch.from_numpy(lse), **options)
    given = np.full_like(out, np.nan)
    jit.flash_attention(*arrays, out=given, **options)
    assert np.array_equal(given, out)


def test_every_order_gives_the_same_bits():
    """Nothing that a launch leaves open (who is first, when a copy lands) may reach the result."""
    case = AttentionCase(len_q=150, len_kv=200, heads=4, heads_kv=2, causal=True, softcap=9.0)
    q, k, v = case.inputs()
    results = []
    for schedule, seed in itertools.product(("late", "eager"), (0, 1, 2, 12345)):
        with kiln.device(ARCH, schedule=schedule, seed=seed):
            out, lse = case.outputs()
            jit.flash_attention(q, k, v, out=out.view, lse=lse, causal=True, softcap=9.0)
            results.append((out.view, lse))
    for out, lse in results[1:]:
        assert torch.equal(out, results[0][0]) and torch.equal(lse, results[0][1])


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_every_modelled_architecture(arch):
    with kiln.device(f"emulator:{arch}"):
        for case in (
            AttentionCase(head_dim=256, len_q=20, len_kv=75, causal=True),
            AttentionCase(head_dim=64, len_q=90, len_kv=75, softcap=3.0),
        ):
            case.check()
