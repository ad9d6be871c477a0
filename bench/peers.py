"""The peers of attention: PyTorch's SDPA by backend, FlexAttention, Triton, and flash_peers.py's.

Each function makes a Contender for given inputs, or raises Unavailable with the reason.
"""

from __future__ import annotations

import functools
import warnings

import flash_peers
import torch
from measure import REASON_LENGTH, Contender, Unavailable
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}


def attention(cell, inputs, flex):
    """Makers by name, for a list of (q, k, v) sets; `flex`: this cell is worth FlexAttention's
    compilation."""
    peers = {name: functools.partial(sdpa, cell, inputs, name) for name in BACKENDS}
    peers["FA3"] = functools.partial(flash_peers.fa3, cell, inputs)
    peers["FA4"] = functools.partial(flash_peers.fa4, cell, inputs)
    peers["FlashInfer"] = functools.partial(flash_peers.flashinfer, cell, inputs)
    peers["Triton"] = functools.partial(triton, cell, inputs)
    peers["FlexAttention"] = functools.partial(flex_attention if flex else _no_flex, cell, inputs)
    return peers


def _no_flex(cell, inputs):
    raise Unavailable("compiles for seconds a shape: timed in few cells, not in the short form")


def _heads_first(x):
    return x.transpose(1, 2)


def sdpa(cell, inputs, name):
    if cell.softcap or cell.left is not None:
        raise Unavailable("PyTorch's SDPA has neither softcap nor windows")
    sets = [tuple(_heads_first(x) for x in tensors) for tensors in inputs]
    options = {"enable_gqa": cell.heads != cell.heads_kv}
    if cell.causal and cell.len_q == cell.len_kv:
        options["is_causal"] = True  # aligned top-left: right on squares only
    elif cell.causal:
        options["attn_mask"] = _bottom_right(cell, name, sets[0][0].dtype)
    backends = [BACKENDS[name]]

    def call(index):
        with sdpa_kernel(backends):
            return scaled_dot_product_attention(*sets[index], **options)

    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")  # they say why a backend refuses
        try:
            call(0)
        except RuntimeError as error:
            said = [str(error), *(str(note.message) for note in notes)]
            text = "; ".join(part.strip().splitlines()[0] for part in said if part.strip())
            raise Unavailable(f"refuses: {text}"[:REASON_LENGTH]) from error
    return Contender(call, _heads_first)


def _bottom_right(cell, name, dtype):
    """FA2 knows this mask by name; cuDNN is given it as numbers."""
    if name == "FA2":
        from torch.nn.attention.bias import causal_lower_right

        return causal_lower_right(cell.len_q, cell.len_kv)
    hidden = torch.ones(cell.len_q, cell.len_kv, dtype=torch.bool, device="cuda")
    hidden = hidden.triu(cell.len_kv - cell.len_q + 1)
    mask = torch.zeros(cell.len_q, cell.len_kv, dtype=dtype, device="cuda")
    mask = mask.masked_fill(hidden, float("-inf"))
    return mask[None, None].expand(cell.batch, cell.heads, -1, -1)


def triton(cell, inputs):
    if cell.softcap or cell.left is not None:
        raise Unavailable("our Triton kernel has neither softcap nor windows")
    if inputs[0][0].itemsize == 1:
        raise Unavailable("our Triton kernel takes no 8-bit elements")
    if cell.decode:
        raise Unavailable("our Triton kernel does not split the keys of one query")
    try:
        import triton_attention as kernel
    except ImportError as error:
        raise Unavailable(f"not installed: {error}") from error
    q, k, _ = inputs[0]
    refusal = kernel.refusal(q, k, cell.causal)
    if refusal:
        raise Unavailable(refusal)
    outs = [kernel.empty_like(q) for q, _, _ in inputs]

    def call(index):
        q, k, v = inputs[index]
        return kernel.attention(q, k, v, cell.causal, outs[index])

    return Contender(call)


def flex_attention(cell, inputs):
    try:
        from torch.nn.attention import flex_attention as flex
    except ImportError as error:
        raise Unavailable(f"not in this PyTorch: {error}") from error
    torch._dynamo.reset()  # its limit of recompilations is for the process
    options = {"enable_gqa": cell.heads != cell.heads_kv}
    if cell.softcap:
        cap = cell.softcap

        def softcap(score, batch, head, row, key):
            return cap * torch.tanh(score / cap)

        options["score_mod"] = softcap
    if cell.causal or cell.left is not None:
        options["block_mask"] = _block_mask(cell, flex.create_block_mask)
    compiled = torch.compile(flex.flex_attention, dynamic=False, fullgraph=True)
    sets = [tuple(_heads_first(x) for x in tensors) for tensors in inputs]
    return Contender(lambda index: compiled(*sets[index], **options), _heads_first)


def _block_mask(cell, create_block_mask):
    shift, left = cell.len_kv - cell.len_q, cell.left

    def causal(batch, head, row, key):
        return row + shift >= key

    def window(batch, head, row, key):
        return (row + shift >= key) & (row + shift - key <= left)

    mask = causal if left is None else window
    return create_block_mask(mask, None, None, cell.len_q, cell.len_kv, device="cuda")
