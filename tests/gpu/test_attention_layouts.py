"""Attention over layouts, strides, alignments and sizes at the edge of nothing."""

import dataclasses
import math

import pytest
import torch
from attention_case import AttentionCase, CaseGroup, judge
from kiln import jit
from storage import DEVICE, place, randn

pytestmark = pytest.mark.usefixtures("compiled")

STORAGES = ["plain", "guarded", "permuted", "head_slice", "offset", "odd"]


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"{layout}-{storage}-d{dim}",
            tuple(
                AttentionCase(
                    layout=layout, storage=storage, out_storage=out, batch=2, heads=4,
                    heads_kv=2, head_dim=dim, len_q=70, len_kv=131, causal=True,
                )
                for out in STORAGES
            ),
        )
        for layout in ("bshd", "bhsd")
        for storage in STORAGES
        for dim in (64, 72)
    ],
    ids=str,
)  # fmt: skip
def test_layouts_and_strides(group):
    group.check()


def test_heads_of_one_packed_tensor():
    batch, length, heads, dim = 2, 100, 3, 64
    qkv = randn([batch, length, 3, heads, dim], torch.bfloat16, 1)
    q, k, v = qkv.unbind(2)
    out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    judge("packed", q, k, v, out, lse, causal=True)


def test_batch_and_heads_broadcast_by_stride_zero():
    q = randn([3, 40, 4, 64], torch.bfloat16, 1)
    k = randn([1, 50, 1, 64], torch.bfloat16, 2).expand(3, 50, 2, 64)
    v = randn([1, 50, 1, 64], torch.bfloat16, 3).expand(3, 50, 2, 64)
    out, lse = jit.flash_attention(q, k, v, return_lse=True)
    judge("broadcast", q, k, v, out, lse)


EDGES = {
    "no-keys": AttentionCase(len_q=70, len_kv=0),
    "no-keys-causal": AttentionCase(len_q=5, len_kv=0, causal=True),
    "no-keys-all-options": AttentionCase(
        len_q=70, len_kv=0, softcap=5.0, alibi="h", sinks="f32", window=(3, 3)
    ),
    "no-queries": AttentionCase(len_q=0, len_kv=70),
    "no-batch": AttentionCase(batch=0),
    "nothing": AttentionCase(len_q=0, len_kv=0),
    "leading-rows-empty": AttentionCase(len_q=300, len_kv=90, causal=True),
    "leading-rows-empty-sinks": AttentionCase(len_q=300, len_kv=90, causal=True, sinks="f32"),
    "one-key": AttentionCase(len_q=200, len_kv=1, causal=True),
    "only-the-last-row-sees": AttentionCase(len_q=129, len_kv=1, window=(0, 0)),
    "window-misses-all": AttentionCase(len_q=500, len_kv=10, window=(-1, 0)),
}


@pytest.mark.parametrize(
    "group", [CaseGroup(name, (case,)) for name, case in EDGES.items()], ids=str
)
def test_edges(group):
    group.check()


def test_causal_rows_before_the_first_key_are_zero_and_minus_infinity():
    out, lse = AttentionCase(len_q=300, len_kv=90, causal=True).check()
    assert (out[:, :210] == 0).all()
    assert (lse[..., :210] == -math.inf).all()
    assert torch.isfinite(lse[..., 210:]).all()


def test_keys_that_no_query_sees_may_be_nan():
    case = AttentionCase(len_q=5, len_kv=300, window=(20, 0), storage="guarded")
    q, k, v = case.inputs()
    out, lse = case.outputs()
    k[:, :275] = math.nan
    v[:, :275] = math.nan
    jit.flash_attention(q, k, v, out=out.view, lse=lse, window=(20, 0))
    judge("unseen NaN", q, k[:, 275:], v[:, 275:], out, lse, window=(20, 0))


# Logits of +-6e4 are exact: a power of two times a small integer in every dimension.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("extreme", [6e4, -6e4, -1e4])
def test_extreme_logits(dtype, extreme):
    q = torch.zeros([1, 130, 1, 64], device=DEVICE)
    k = torch.zeros([1, 130, 1, 64], device=DEVICE)
    q[..., 0] = 128.0
    k[..., 0] = float(round(extreme / 128))
    k[:, ::3, :, 0] += 1 if dtype == torch.float16 else 2  # 128 or 256 above the others
    q, k = q.to(dtype), k.to(dtype)
    v = randn([1, 130, 1, 64], dtype, 3)
    out, lse = jit.flash_attention(q, k, v, scale=1.0, return_lse=True)
    judge(f"logits near {extreme}", q, k, v, out, lse, scale=1.0)


@pytest.mark.parametrize("return_lse", [False, True])
def test_given_outputs_are_used(return_lse):
    case = AttentionCase(len_q=77, len_kv=90)
    q, k, v = case.inputs()
    fresh, fresh_lse = jit.flash_attention(q, k, v, return_lse=True)
    out, lse = case.outputs()
    returned = jit.flash_attention(q, k, v, out=out.view, lse=lse, return_lse=return_lse)
    returned = returned if return_lse else (returned,)
    assert returned[0].data_ptr() == out.view.data_ptr()
    assert torch.equal(out.view, fresh) and torch.equal(lse, fresh_lse)


def test_the_output_alone_equals_the_output_with_lse():
    q, k, v = AttentionCase(len_q=77, len_kv=90).inputs()
    alone = jit.flash_attention(q, k, v)
    assert alone.shape == (1, 77, 2, 64) and alone.dtype == q.dtype and alone.is_contiguous()
    assert torch.equal(alone, jit.flash_attention(q, k, v, return_lse=True)[0])


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 4.0, "window": (50, 0)}])
def test_repeats_are_bit_identical(options):
    case = AttentionCase(len_q=1000, len_kv=1000, heads=8, heads_kv=2, batch=2)
    q, k, v = case.inputs()
    first, first_lse = jit.flash_attention(q, k, v, return_lse=True, **options)
    for _ in range(20):
        out, lse = case.outputs()
        jit.flash_attention(q, k, v, out=out.view, lse=lse, **options)
        assert torch.equal(out.view, first) and torch.equal(lse, first_lse)


@pytest.fixture
def huge_buffer():
    """More than 2^31 bf16 elements."""
    if torch.cuda.mem_get_info()[0] < 8 << 30:
        pytest.skip("needs 8 GB of free device memory")
    yield torch.empty(70_000 * 32_768, dtype=torch.bfloat16, device=DEVICE)
    torch.cuda.empty_cache()


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
    case = dataclasses.replace(AttentionCase(), batch=2, len_q=64)
    q, k, v = case.inputs()
    out, _ = case.outputs()
    lse = place("guarded", [2, 2, 64], torch.float32)
    jit.flash_attention(q, k, v, out=out.view, lse=lse.view)
    judge("strided lse", q, k, v, out, lse.view)
    lse.check_untouched("strided lse")
