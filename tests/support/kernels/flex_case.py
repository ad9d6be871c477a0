"""Calls of jit.flex_attention, judged against PyTorch's own in float32."""

import kiln
import torch
import torch.nn.attention.flex_attention as flex
from kiln import jit
from storage import DEVICE

WITH_LSE = flex.AuxRequest(lse=True)


def inputs(batch=2, heads=4, heads_kv=2, len_q=90, len_kv=90, dim=64, dtype=torch.float16, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def normal(heads, length):
        numbers = torch.randn(batch, heads, length, dim, generator=generator)
        return numbers.to(dtype).to(DEVICE)

    return normal(heads, len_q), normal(heads_kv, len_kv), normal(heads_kv, len_kv)


def expected(q, k, v, score_mod=None, mask_mod=None):
    """PyTorch's result, which looks at every pair. What it says of its speed is not wanted."""
    block_mask = None
    if mask_mod is not None:
        shape = (q.size(0), q.size(1), q.size(2), k.size(2))
        block_mask = flex.create_block_mask(mask_mod, *shape, device=DEVICE)
    is_eager, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = (
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG,
        True,
    )
    try:
        return flex.flex_attention(
            q.float(), k.float(), v.float(), score_mod, block_mask, enable_gqa=True,
            return_aux=WITH_LSE,
        )  # fmt: skip
    finally:
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = is_eager


def judge(found, reference, dtype=torch.float16):
    """A single key too many or too few of 100 moves an LSE by 1e-2."""
    (out, aux), (out_expected, aux_expected) = found, reference
    assert out.shape == out_expected.shape
    torch.testing.assert_close(
        out.float(), out_expected, rtol=0, atol=5e-3 if dtype == torch.float16 else 4e-2
    )
    assert aux.lse.dtype == torch.float32
    torch.testing.assert_close(aux.lse, aux_expected.lse, rtol=1e-4, atol=1e-4)


def run(tensors, score_mod=None, mask_mod=None, block_mask=None):
    """One call. What it shows is given as mask_mod, for PyTorch, and perhaps as a BlockMask."""
    given = {"mask_mod": mask_mod} if block_mask is None else {"block_mask": block_mask}
    found = jit.flex_attention(*tensors, score_mod, enable_gqa=True, return_aux=WITH_LSE, **given)
    judge(found, expected(*tensors, score_mod, mask_mod), tensors[0].dtype)
    return found[0]


def compiles():
    """The kernels that this process has compiled so far."""
    return kiln.stats()["compiles"]
