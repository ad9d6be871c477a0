"""Attention over layouts, strides, alignments and sizes at the edge of nothing."""

import math

import pytest
import torch
from attention_case import AttentionCase, extreme_inputs, judge
from case_group import CaseGroup
from grid import sized
from kiln import jit
from storage import DEVICE, place, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

STORAGES = ["plain", "guarded", "permuted", "head_slice", "offset", "odd"]
LAYOUT_KINDS = sized(
    small=[("bshd", 64), ("bhsd", 72)],
    full=[(layout, dim) for layout in ("bshd", "bhsd") for dim in (64, 72)],
)
LENGTHS = sized(small=dict(len_q=30, len_kv=71), full=dict(len_q=70, len_kv=131))


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"{layout}-{storage}-d{dim}",
            tuple(
                AttentionCase(
                    layout=layout, storage=storage, out_storage=out, batch=2, heads=4,
                    heads_kv=2, head_dim=dim, causal=True, **LENGTHS,
                )
                for out in STORAGES
            ),
        )
        for layout, dim in LAYOUT_KINDS
        for storage in STORAGES
    ],
    ids=str,
)  # fmt: skip
def test_layouts_and_strides(group):
    group.check()


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"{layout}-{storage}",
            tuple(
                AttentionCase(
                    layout=layout, v_storage=storage, batch=2, heads=4, heads_kv=2, len_q=len_q,
                    len_kv=71,
                )
                for len_q in (3, 70)  # of a packed tile, and of one head each
            ),
        )
        for layout in ("bshd", "bhsd")
        for storage in ("guarded", "permuted", "head_slice")
    ],
    ids=str,
)  # fmt: skip
def test_values_have_strides_of_their_own(group):
    group.check()


def test_heads_of_one_packed_tensor():
    length = sized(small=50, full=100)
    q, k, v = randn([2, length, 3, 3, 64], torch.bfloat16, 1).unbind(2)
    out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    judge("packed", q, k, v, out, lse, causal=True)


def test_batch_and_heads_broadcast_by_stride_zero():
    q = randn([3, 40, 4, 64], torch.bfloat16, 1)
    k = randn([1, 50, 1, 64], torch.bfloat16, 2).expand(3, 50, 2, 64)
    v = randn([1, 50, 1, 64], torch.bfloat16, 3).expand(3, 50, 2, 64)
    out, lse = jit.flash_attention(q, k, v, return_lse=True)
    judge("broadcast", q, k, v, out, lse)


MORE_QUERIES = sized(small=dict(len_q=150, len_kv=40), full=dict(len_q=300, len_kv=90))
EDGES = {
    "no-keys": AttentionCase(len_q=70, len_kv=0),
    "no-keys-causal": AttentionCase(len_q=5, len_kv=0, causal=True),
    "no-keys-all-options": AttentionCase(
        len_q=70, len_kv=0, softcap=5.0, alibi="h", sinks="f32", window=(3, 3)
    ),
    "no-queries": AttentionCase(len_q=0, len_kv=70),
    "no-batch": AttentionCase(batch=0),
    "nothing": AttentionCase(len_q=0, len_kv=0),
    "leading-rows-empty": AttentionCase(causal=True, **MORE_QUERIES),
    "leading-rows-empty-sinks": AttentionCase(causal=True, sinks="f32", **MORE_QUERIES),
    "one-key": AttentionCase(len_q=sized(small=100, full=200), len_kv=1, causal=True),
    "only-the-last-row-sees": AttentionCase(len_q=129, len_kv=1, window=(0, 0)),
    "window-misses-all": AttentionCase(len_q=sized(small=200, full=500), len_kv=10, window=(-1, 0)),
}


@pytest.mark.parametrize(
    "group", [CaseGroup(name, (case,)) for name, case in EDGES.items()], ids=str
)
def test_edges(group):
    group.check()


def test_causal_rows_before_the_first_key_are_zero_and_minus_infinity():
    case = AttentionCase(causal=True, **MORE_QUERIES)
    out, lse = case.check()
    first = case.len_q - case.len_kv
    assert (out[:, :first] == 0).all()
    assert (lse[..., :first] == -math.inf).all()
    assert torch.isfinite(lse[..., first:]).all()


def test_keys_that_no_query_sees_may_be_nan():
    len_kv = sized(small=150, full=300)
    case = AttentionCase(len_q=5, len_kv=len_kv, window=(20, 0), storage="guarded")
    q, k, v = case.inputs()
    out, lse = case.outputs()
    seen = len_kv - 25
    k[:, :seen] = math.nan
    v[:, :seen] = math.nan
    jit.flash_attention(q, k, v, out=out.view, lse=lse, window=(20, 0))
    judge("unseen NaN", q, k[:, seen:], v[:, seen:], out, lse, window=(20, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("extreme", [6e4, -6e4, -1e4, "largest"])
def test_extreme_logits(dtype, extreme):
    if extreme == "largest":  # that the documentation promises: 2^26, and 2^30 of bfloat16
        return check_largest_logits(dtype)
    length = sized(small=70, full=130)
    q, k, v = extreme_inputs(dtype, extreme, len_q=length, len_kv=length, heads=1)
    out, lse = jit.flash_attention(q, k, v, scale=1.0, return_lse=True)
    judge(f"logits near {extreme}", q, k, v, out, lse, scale=1.0)


def check_largest_logits(dtype):
    """Exact logits a bit below the largest: a third of the keys share the weight, or one has it."""
    largest = 2.0**26 if dtype == torch.float16 else 2.0**30
    length = sized(small=70, full=130)
    scale = largest / 128 / 255
    for third in (1, length):
        q, k, v = extreme_inputs(dtype, 128.0 * 250, len_q=length, len_kv=length, heads=1)
        k[:, ::3, :, 0] = 250
        k[:, ::third, :, 0] = 254
        out, lse = jit.flash_attention(q, k, v, scale=scale, return_lse=True)
        judge(f"logits near {largest}", q, k, v, out, lse, scale=scale)


@pytest.fixture
def huge_buffer():
    """More than 2^31 bf16 elements."""
    if torch.cuda.mem_get_info()[0] < 8 << 30:
        pytest.skip("needs 8 GB of free device memory")
    yield torch.empty(70_000 * 32_768, dtype=torch.bfloat16, device=DEVICE)
    torch.cuda.empty_cache()


@pytest.mark.cuda
@pytest.mark.slow
def test_row_offsets_beyond_31_bits(huge_buffer):
    length, row_stride = 70_000, 32_768
    q, k, v, out = (
        huge_buffer.as_strided([1, length, 1, 64], [0, row_stride, 64, 1], 64 * i) for i in range(4)
    )
    for i, x in enumerate((q, k, v)):
        x.copy_(randn([1, length, 1, 64], torch.bfloat16, i))
    few, near = slice(length - 100, length), slice(length - 700, length)
    lse = torch.full([1, 1, length], math.nan, device=DEVICE)
    jit.flash_attention(q, k, v, out=out, lse=lse, window=(600, 0))
    judge("far queries", q[:, few], k[:, near], v[:, near], out[:, few], lse[..., few],
          window=(600, 0))  # fmt: skip
    out, lse = jit.flash_attention(q[:, few], k, v, return_lse=True)
    judge("far keys", q[:, few], k, v, out, lse)


@pytest.mark.cuda
@pytest.mark.slow
def test_batch_offsets_beyond_31_bits(huge_buffer):
    stride, buffer = 2**31 + 64, huge_buffer
    views = [buffer.as_strided([2, 100, 1, 64], [stride, 256, 64, 1], 64 * i) for i in range(4)]
    for i, x in enumerate(views[:3]):
        x.copy_(randn([2, 100, 1, 64], torch.bfloat16, i))
    q, k, v, out = views
    lse = torch.full([2, 1, 100], math.nan, device=DEVICE)
    jit.flash_attention(q, k, v, out=out, lse=lse)
    judge("far batch", q, k, v, out, lse)


def test_an_lse_with_a_batch_stride():
    case = AttentionCase(batch=2, len_q=64, len_kv=sized(small=30, full=129))
    q, k, v = case.inputs()
    out, _ = case.outputs()
    lse = place("guarded", [2, 2, 64], torch.float32)
    jit.flash_attention(q, k, v, out=out.view, lse=lse.view)
    judge("strided lse", q, k, v, out, lse.view)
    lse.check_untouched("strided lse")
