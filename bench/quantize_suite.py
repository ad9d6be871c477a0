"""The suite quantize: Kiln's quantize beside a copy of the same bytes and PyTorch's operations."""

from __future__ import annotations

import functools

import torch
from attention_suite import explained, set_count
from copies import copy
from kiln import jit
from measure import Contender, Entry
from norm_suite import DTYPES
from torch.nn import functional

LARGEST = 448.0


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)
    shape = (cell.rows, cell.columns * (2 if cell.gated else 1))
    inputs = [
        torch.randn(shape, device="cuda", dtype=DTYPES[cell.dtype], generator=generator)
        for _ in range(set_count(cell.bytes))
    ]
    return [_entry(cell, inputs) for cell in batch]


def _entry(cell, inputs):
    words = {"group": cell.size, "activation": "swiglu" if cell.gated else None}
    results = [jit.quantize(x, **words) for x in inputs]

    def ours(index):
        out, scale = results[index]
        return jit.quantize(inputs[index], **words, out=out, scale_out=scale)

    out, scale = results[0]
    return Entry(
        cell=cell,
        ours=Contender(ours, view=functools.partial(_values, cell)),
        peers={
            "copy": lambda: copy(cell.bytes, len(inputs), lambda: _truth(cell, inputs[0])),
            "PyTorch": functools.partial(pytorch, cell, inputs),
        },
        truth=lambda index: _truth(cell, inputs[index]),
        sets=len(inputs),
        config=explained("quantize", inputs[0], **words, out=out, scale_out=scale),
    )


def _values(cell, result):
    """What the results stand for."""
    out, scale = result
    size = cell.size or cell.columns
    return (out.float().unflatten(-1, (-1, size)) * scale.unsqueeze(-1)).flatten(-2)


def _quantised(x, size, gated):
    if gated:
        gate, up = x.float().chunk(2, -1)
        x = functional.silu(gate) * up
    groups = x.float().unflatten(-1, (-1, size))
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-4) / LARGEST
    return (groups / scale).to(torch.float8_e4m3fn).flatten(-2), scale.squeeze(-1)


def _truth(cell, x):
    return _values(cell, _quantised(x, cell.size or cell.columns, cell.gated))


def pytorch(cell, inputs):
    """As a model without a kernel for it does, compiled."""
    compiled = torch.compile(_quantised, dynamic=False)
    size = cell.size or cell.columns
    return Contender(
        lambda index: compiled(inputs[index], size, cell.gated),
        view=functools.partial(_values, cell),
    )
