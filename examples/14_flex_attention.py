"""FlexAttention's callables on Kiln: the same functions as PyTorch's, without torch.compile."""

import kiln
import torch
from kiln import jit
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

device = "cuda" if torch.cuda.is_available() else "cpu"
heads, length = 4, 160
q, k, v = torch.randn(3, 1, heads, length, 64, device=device, dtype=torch.float16)
document = torch.arange(length, device=device) // 60
rotary_q = torch.randn(heads, length, 16, device=device)
rotary_k = torch.randn(length, 16, device=device)
strength = 0.1


def causal_in_document(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (document[q_idx] == document[kv_idx])


def with_rotary_part(score, b, h, q_idx, kv_idx):
    """Latent attention adds a product of other vectors, whose keys all heads share."""
    return score + strength * torch.dot(rotary_q[h, q_idx], rotary_k[kv_idx])


block_mask = create_block_mask(causal_in_document, None, None, length, length, device=device)


def check():
    expected = flex_attention(*(x.float() for x in (q, k, v)), with_rotary_part, block_mask)
    # The lists of a BlockMask say which blocks are computed; a bare mask_mod is read for that.
    for shown in ({"block_mask": block_mask}, {"mask_mod": causal_in_document}):
        out = jit.flex_attention(q, k, v, with_rotary_part, **shown)
        torch.testing.assert_close(out.float(), expected, rtol=2e-3, atol=4e-3)


check()
kernels = kiln.stats()["kernels_resident"]
strength, document = 0.4, torch.arange(length, device=device) // 37  # read anew at each call
block_mask = create_block_mask(causal_in_document, None, None, length, length, device=device)
check()
assert kiln.stats()["kernels_resident"] == kernels, "other values compile nothing"
print("ok: both kinds of mask agree with PyTorch, and other values compiled nothing")
