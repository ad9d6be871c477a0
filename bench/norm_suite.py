"""The suite norm: Kiln's rms_norm and layer_norm beside PyTorch's."""

from __future__ import annotations

import functools
import math

import torch
from attention_suite import explained, set_count
from kiln import jit
from measure import Contender, Entry
from torch.nn import functional

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
EPS = {"rms_norm": 1e-6, "layer_norm": 1e-5}


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)

    def randn(*shape):
        return torch.randn(shape, device="cuda", dtype=DTYPES[cell.dtype], generator=generator)

    sets = set_count(max(cell.bytes for cell in batch))
    inputs = [
        {
            "x": randn(cell.rows, cell.columns),
            "residual": randn(cell.rows, cell.columns),
            "weight": randn(cell.columns),
            "bias": randn(cell.columns),
        }
        for _ in range(sets)
    ]
    return [_entry(cell, inputs) for cell in batch]


def _vectors(cell, x):
    return [x["weight"]] if cell.kind == "rms_norm" else [x["weight"], x["bias"]]


def _entry(cell, inputs):
    ours = getattr(jit, cell.kind)
    outs = [torch.full_like(x["x"], math.nan) for x in inputs]
    sums = [torch.full_like(x["x"], math.nan) for x in inputs]

    def keywords(index):
        words = {"out": outs[index], "activation": cell.activation}
        if cell.residual:
            words |= {"residual": inputs[index]["residual"], "residual_out": sums[index]}
        return words

    calls = [
        functools.partial(ours, x["x"], *_vectors(cell, x), **keywords(index))
        for index, x in enumerate(inputs)
    ]
    first = inputs[0]
    return Entry(
        cell=cell,
        ours=Contender(lambda index: calls[index]()),
        peers={"PyTorch": functools.partial(pytorch, cell, inputs)},
        truth=lambda index: _norm(cell, inputs[index], torch.float32),
        sets=len(inputs),
        config=explained(cell.kind, first["x"], *_vectors(cell, first), **keywords(0)),
    )


def _norm(cell, x, dtype):
    """PyTorch's, of what is cast to `dtype` first; in float32 it is the truth."""
    s = x["x"].to(dtype)
    if cell.residual:
        s = s + x["residual"].to(dtype)
    vectors = [vector.to(dtype) for vector in _vectors(cell, x)]
    apply = getattr(functional, cell.kind)
    out = apply(s, (cell.columns,), *vectors, eps=EPS[cell.kind])
    return functional.gelu(out) if cell.activation == "gelu" else out


def pytorch(cell, inputs):
    """The fused norm, behind an addition and before an activation where the cell has these."""
    return Contender(lambda index: _norm(cell, inputs[index], inputs[index]["x"].dtype))
