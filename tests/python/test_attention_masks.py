"""jit.flash_attention's attn_mask and top_left, in both layouts, on the emulated device: beside the
textbook's attention in double precision."""

import kiln
import numpy as np
import pytest
import torch
from kiln import jit

BATCH, HEADS, HEADS_KV, LEN_Q, LEN_KV, DIM = 2, 4, 2, 19, 23, 32
FULL = (BATCH, HEADS, LEN_Q, LEN_KV)


@pytest.fixture(autouse=True)
def emulated():
    with kiln.device("emulator:sm_80"), torch.no_grad():
        torch.manual_seed(0)
        yield


def inputs(dtype=torch.float16, len_q=LEN_Q, len_kv=LEN_KV):
    """q, k and v with heads before lengths."""
    shapes = ((HEADS, len_q), (HEADS_KV, len_kv), (HEADS_KV, len_kv))
    return [torch.randn(BATCH, *shape, DIM).to(dtype) for shape in shapes]


def textbook(q, k, v, added=None, visible=None):
    """Output and log-sum-exp in double precision; a hidden row is 0 and -inf."""
    k, v = (x.double().repeat_interleave(HEADS // HEADS_KV, 1) for x in (k, v))
    logits = q.double() @ k.mT / DIM**0.5
    if added is not None:
        logits = logits + added.double()
    if visible is not None:
        logits = logits.masked_fill(~visible, -torch.inf)
    weights = torch.nan_to_num(torch.softmax(logits, -1))
    return weights @ v, torch.logsumexp(logits, -1)


def matches(layout, q, k, v, added=None, visible=None, **options):
    given = [x if layout == "bhsd" else x.transpose(1, 2) for x in (q, k, v)]
    out, lse = jit.flash_attention(*given, layout=layout, return_lse=True, **options)
    expected, expected_lse = textbook(q, k, v, added, visible)
    ours = out if layout == "bhsd" else out.transpose(1, 2)
    step = 2.0**-8 if q.dtype == torch.bfloat16 else 2.0**-11
    torch.testing.assert_close(ours.double(), expected, rtol=2 * step, atol=4 * step)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-3, atol=1e-3)


LAYOUTS = pytest.mark.parametrize("layout", ["bshd", "bhsd"])
SHAPES = [FULL, (1, HEADS, 1, LEN_KV), (BATCH, 1, LEN_Q, LEN_KV), (1, 1, LEN_Q, 1)]


@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES)
def test_boolean_masks(layout, shape):
    mask = torch.rand(shape) > 0.4
    mask[0, 0, 0, :] = False
    matches(layout, *inputs(), visible=mask, attn_mask=mask)


@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_that_are_added(layout, shape, dtype):
    mask = torch.randn(shape).to(dtype)
    mask[torch.rand(shape) > 0.8] = -torch.inf
    matches(layout, *inputs(torch.bfloat16), added=mask, attn_mask=mask)


@pytest.mark.parametrize("len_q, len_kv", [(LEN_Q, LEN_KV), (LEN_Q, 24), (1, 700)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_nan_in_a_mask_reaches_its_rows(len_q, len_kv, dtype):
    """Keys one by one, in pairs, and shared by several blocks: as in PyTorch."""
    q, k, v = inputs(torch.bfloat16, len_q, len_kv)
    mask = torch.randn(BATCH, HEADS, len_q, len_kv).to(dtype)
    mask[0, 0, 0, len_kv - 2] = torch.nan
    mask[0, 1, 0, 0] = torch.nan
    mask[0, 1, 0, 1:] = -torch.inf
    mask[1, 0] = torch.nan
    out, lse = jit.flash_attention(q, k, v, layout="bhsd", attn_mask=mask, return_lse=True)
    _, expected_lse = textbook(q, k, v, mask)
    assert expected_lse[1, 0].isnan().all() and not expected_lse[1, 1].isnan().any()
    assert torch.equal(out.isnan().any(-1), expected_lse.isnan())
    assert torch.equal(out.isnan().all(-1), expected_lse.isnan())
    assert torch.equal(lse.isnan(), expected_lse.isnan())


@LAYOUTS
def test_a_mask_beside_causal_and_a_window(layout):
    mask = torch.rand(FULL) > 0.3
    behind = torch.arange(LEN_Q)[:, None] + LEN_KV - LEN_Q - torch.arange(LEN_KV)
    matches(layout, *inputs(), visible=mask & (behind >= 0), attn_mask=mask, causal=True)
    near = (behind >= -2) & (behind <= 5)
    matches(layout, *inputs(), visible=mask & near, attn_mask=mask, window=(5, 2))


@LAYOUTS
@pytest.mark.parametrize("len_q, len_kv", [(19, 23), (23, 19), (1, 20), (20, 1), (16, 16)])
def test_causal_aligned_top_left(layout, len_q, len_kv):
    tensors = inputs(len_q=len_q, len_kv=len_kv)
    visible = torch.arange(len_q)[:, None] >= torch.arange(len_kv)
    matches(layout, *tensors, visible=visible, causal=True, top_left=True)


def test_top_left_and_bottom_right_differ_where_the_lengths_do():
    q, k, v = inputs()
    ours = [
        jit.flash_attention(q, k, v, layout="bhsd", causal=True, top_left=x) for x in (False, True)
    ]
    assert not torch.equal(*ours)


def test_numpy_arrays():
    q, k, v = (x.transpose(1, 2) for x in inputs())
    mask = torch.rand(FULL) > 0.4
    out = jit.flash_attention(*(x.numpy() for x in (q, k, v)), attn_mask=mask.numpy())
    assert isinstance(out, np.ndarray)
    assert np.array_equal(out, jit.flash_attention(q, k, v, attn_mask=mask).numpy())


def test_an_expanded_mask_is_never_copied():
    n = 32 * 1024
    k = torch.randn(1, n, 1, 8).half()
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool).expand(1, 1, n, n)
    explained = kiln.explain("flash_attention", k, k, k, attn_mask=mask)
    assert explained["spec"]["attn_mask"] == "bool" and explained["workspace_bytes"] == 0
    few = k[:, :16]
    out = jit.flash_attention(few, k, k, attn_mask=mask[:, :, :16])
    assert torch.equal(out, jit.flash_attention(few, k, k))


@pytest.mark.parametrize(
    "error, words, options",
    [
        (ValueError, "top_left needs causal and excludes a window", {"top_left": True}),
        (ValueError, "top_left needs causal and excludes a window",
         {"top_left": True, "causal": True, "window": (3, 0)}),
        (TypeError, "top_left must be True or False, got 1", {"top_left": 1}),
        (TypeError, "attn_mask must be bool, float32 or float16 like q, got int32",
         {"attn_mask": torch.ones(FULL, dtype=torch.int32)}),
        (ValueError, r"attn_mask must have 4 dimensions \[batch, heads, len_q, len_kv\]",
         {"attn_mask": torch.ones(LEN_Q, LEN_KV, dtype=torch.bool)}),
        (ValueError, r"attn_mask must have shape \[2, 4, 19, 23\], each or 1, got \[2, 4, 23, 19\]",
         {"attn_mask": torch.ones(FULL, dtype=torch.bool).mT}),
        (TypeError, "attn_mask must be a", {"attn_mask": [[True]]}),
        (ValueError, "softcap must be at most 1000, beyond which", {"softcap": 1001.0}),
    ],
)  # fmt: skip
def test_refusals(error, words, options):
    with pytest.raises(error, match=f"flash_attention: {words}"):
        jit.flash_attention(*inputs(), layout="bhsd", **options)
