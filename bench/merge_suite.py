"""The suite merge: Kiln's merge_states beside a copy of the same bytes and PyTorch's operations."""

from __future__ import annotations

import functools
import math

import torch
from attention_suite import explained, set_count
from copies import copy
from kiln import jit
from measure import Contender, Entry
from norm_suite import DTYPES


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)

    def randn(*shape, dtype=torch.float32):
        return torch.randn(shape, device="cuda", dtype=dtype, generator=generator)

    shape = (cell.parts, cell.tokens, cell.heads)
    inputs = [
        (randn(*shape, cell.head_dim, dtype=DTYPES[cell.dtype]), randn(*shape).mT.contiguous())
        for _ in range(set_count(cell.bytes))
    ]
    return [_entry(cell, inputs) for cell in batch]


def _entry(cell, inputs):
    results = [
        (torch.full_like(outs[0], math.nan), torch.full_like(lses[0], math.nan))
        for outs, lses in inputs
    ]

    def ours(index):
        out, lse = results[index]
        return jit.merge_states(*inputs[index], out=out, lse=lse)

    out, lse = results[0]
    return Entry(
        cell=cell,
        ours=Contender(ours),
        peers={
            "copy": lambda: copy(cell.bytes, len(inputs), lambda: _merged(*inputs[0])[0]),
            "PyTorch": functools.partial(pytorch, inputs),
        },
        truth=lambda index: _merged(*inputs[index])[0],
        sets=len(inputs),
        config=explained("merge_states", *inputs[0], out=out, lse=lse),
    )


def _merged(outs, lses):
    total = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - total).mT.unsqueeze(-1)
    return (weights * outs.float()).sum(0), total


def pytorch(inputs):
    """As a model without a kernel for it computes it."""
    return Contender(lambda index: _merged(*inputs[index]), view=lambda result: result[0])
