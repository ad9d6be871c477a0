"""The largest scores of jit.flex_attention, as PyTorch's own computation of every pair has them."""

import math

import grid
import kiln
import pytest
import torch
import torch.nn.attention.flex_attention as flex
from flex_case import inputs
from kiln import jit
from storage import DEVICE
from torch._higher_order_ops.flex_attention import math_attention

pytestmark = [pytest.mark.usefixtures("compiled", "device"), pytest.mark.few_multiprocessors]

BOTH = flex.AuxRequest(lse=True, max_scores=True)
IS_SM90 = grid.arch().startswith("sm_90")


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def hides_rows(b, h, q_idx, kv_idx):
    return (q_idx % 5 != 2) & (q_idx + 140 >= kv_idx)


def falling(score, b, h, q_idx, kv_idx):
    return score - 0.3 * (kv_idx - q_idx)


def rising(score, b, h, q_idx, kv_idx):
    return score + 0.01 * (h + 1) * (kv_idx - q_idx)


def low(score, b, h, q_idx, kv_idx):
    return 9.0 * torch.tanh(score) - 40.0


def expected(q, k, v, score_mod, mask_mod):
    """PyTorch's, in float32: out, LSE and maxima."""
    q, k, v = q.float(), k.float(), v.float()
    if mask_mod is None:
        blocks = flex._create_empty_block_mask(q, k)
    else:
        sizes = (q.size(0), q.size(1), q.size(2), k.size(2))
        blocks = flex.create_block_mask(mask_mod, *sizes, device=DEVICE)
    score_mod = score_mod or flex._identity
    scale = q.size(3) ** -0.5
    out, lse, maxima = math_attention(q, k, v, score_mod, blocks.as_tuple(), scale, {})
    return out, lse * math.log(2), maxima * math.log(2)


def judge(tensors, score_mod=None, mask_mod=None, block_mask=None):
    given = {"mask_mod": mask_mod} if block_mask is None else {"block_mask": block_mask}
    out, aux = jit.flex_attention(*tensors, score_mod, enable_gqa=True, return_aux=BOTH, **given)
    wanted, lse, maxima = expected(*tensors, score_mod, mask_mod)
    assert aux.max_scores.dtype == torch.float32
    assert aux.max_scores.shape == tensors[0].shape[:3]
    torch.testing.assert_close(aux.max_scores, maxima, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(aux.lse, lse, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out.float(), wanted, rtol=0, atol=5e-3)


# Shapes, and the kernels that they have on Hopper: portable ones whose teams, or CTAs, share the
# keys of a row, and one without; those of wgmma, alone and with partial results.
FEW = dict(batch=1, len_q=3, len_kv=700)
HEADS = grid.by_device(gpu=dict(heads=140, heads_kv=35), emulator=dict(heads=16, heads_kv=4))
MANY = dict(batch=1, len_q=70, len_kv=330, **HEADS)
SPLIT = dict(batch=1, heads=2, heads_kv=1, len_q=70, len_kv=2100)


@pytest.mark.parametrize("score_mod, mask_mod", [(None, None), (rising, causal), (low, hides_rows)])
@pytest.mark.parametrize("shape", [FEW, MANY, SPLIT], ids=["few", "many", "split"])
def test_maxima(shape, score_mod, mask_mod):
    judge(inputs(**shape), score_mod, mask_mod)


@pytest.mark.parametrize("score_mod", [None, falling])
@pytest.mark.parametrize("heads, dim", [(grid.by_device(gpu=70, emulator=8), 64), (2, 512)])
def test_maxima_of_portable_kernels(heads, dim, score_mod):
    """Rows that no vector may read, and wide ones, whose keys several warps share."""
    shape = dict(batch=1, heads=heads, heads_kv=heads // 2, len_q=70, len_kv=200, dim=dim)
    shifted = [
        torch.cat([x.new_zeros(1), x.flatten()])[1:].view_as(x) if dim == 64 else x
        for x in inputs(**shape)
    ]
    judge(shifted, score_mod, hides_rows)


def test_maxima_of_a_block_mask():
    tensors = inputs(**MANY)
    blocks = flex.create_block_mask(hides_rows, 1, None, 70, 330, device=DEVICE, BLOCK_SIZE=32)
    judge(tensors, rising, hides_rows, blocks)
    judge(tensors, falling, hides_rows, blocks)


@pytest.mark.skipif(not IS_SM90, reason="wgmma is of sm_90a alone")
@pytest.mark.parametrize("dim", [64, 128])
def test_large_scores(dim):
    """Later tiles count too: maxima grow by less and by more than they may be wrong by."""
    q, k, v = inputs(**MANY, dim=dim)
    judge((q * 6, k, v), None, causal)
    judge((q / 8, k, v), None, causal)


def test_maxima_alone_and_of_no_keys():
    q, k, v = inputs(len_kv=0)
    out, aux = jit.flex_attention(
        q, k, v, enable_gqa=True, return_aux=flex.AuxRequest(max_scores=True)
    )
    assert aux.lse is None
    assert (aux.max_scores == -math.inf).all() and (out == 0).all()
    q, k, v = inputs(len_q=0)
    _, aux = jit.flex_attention(q, k, v, enable_gqa=True, return_aux=BOTH)
    assert aux.max_scores.shape == q.shape[:3]


def test_maxima_of_a_file(tmp_path):
    """The hook that they are written by, of kernels that a list and a mask of the call are part of;
    the tensor is checked as a result is."""
    path = tmp_path / "maxima.cuh"
    path.write_text("""
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTakesMaxima = true;
  kiln::VariantTensor<float, 3> most;

  __device__ void take_maximum(float logit, const kiln::Position& row) const {
    most.write(2 * logit, row.b, row.h, row.row);
  }
};
""")
    variant = jit.Variant("maxima", tensors={"most": "f32[b, h, row]"}, file=path)
    q, k, v = inputs(batch=1)
    most = torch.full(q.shape[:3], math.nan, device=DEVICE)
    words = {"causal": True, "layout": "bhsd"}
    jit.flash_attention(q, k, v, variant=variant(most=most), **words)
    torch.testing.assert_close(most / 2, expected(q, k, v, None, causal)[2], rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="most"):
        jit.flash_attention(q, k, v, variant=variant(most=most[:, :1].expand_as(most)), **words)
    spec = kiln.explain("flash_attention", q, k, v, variant=variant(most=most), **words)["spec"]
    assert "kTakesMaxima" in spec["variant"]["file_text"]
