"""The suite moe: Kiln's moe_route, moe_permute and moe_unpermute beside a copy of the same bytes
and PyTorch's operations.

PyTorch's peers are what models do with its operations, without waiting for the GPU: softmax, topk;
a stable argsort of the experts, gathered rows and bincount; gathered rows, weighted and summed.
"""

from __future__ import annotations

import functools

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
    inputs = [_Inputs(cell, generator) for _ in range(set_count(cell.bytes))]
    return [_entry(cell, inputs) for cell in batch]


class _Inputs:
    """The tensors of one call of each step."""

    def __init__(self, cell, generator):
        logits = torch.randn(cell.tokens, cell.experts, device="cuda", generator=generator)
        self.logits, self.cell = logits, cell
        self.weights, self.experts = jit.moe_route(logits, top_k=cell.top_k)
        shape = (cell.tokens, cell.columns)
        self.x = torch.randn(shape, device="cuda", dtype=DTYPES[cell.dtype], generator=generator)
        if cell.step != "route":
            self.rows, self.offsets, self.inverse = jit.moe_permute(
                self.x, self.experts, num_experts=cell.experts
            )
        if cell.step == "unpermute":
            self.sums = torch.empty_like(self.x)

    def call(self):
        """The arguments of the step's function."""
        if self.cell.step == "route":
            words = {"top_k": self.cell.top_k, "weights": self.weights, "experts": self.experts}
            return (self.logits,), words
        if self.cell.step == "permute":
            words = {"out": self.rows, "offsets": self.offsets, "inverse": self.inverse}
            return (self.x, self.experts), {"num_experts": self.cell.experts, **words}
        return (self.rows, self.inverse, self.weights), {"out": self.sums}

    def pytorch(self):
        cell = self.cell
        if cell.step == "route":
            weights, experts = torch.softmax(self.logits, -1).topk(cell.top_k)
            return weights / weights.sum(-1, keepdim=True), experts
        if cell.step == "permute":
            numbers = self.experts.flatten()
            order = numbers.argsort(stable=True)
            ends = torch.bincount(numbers, minlength=cell.experts).cumsum(0)
            return self.x[order // cell.top_k], ends, order.argsort()
        rows = self.rows[self.inverse.flatten().long()].unflatten(0, self.inverse.shape)
        return (rows.float() * self.weights.unsqueeze(-1)).sum(1)

    def truth(self):
        return _first(self.pytorch()).float()


def _first(result):
    return result[0] if isinstance(result, tuple) else result


def _entry(cell, inputs):
    function = getattr(jit, f"moe_{cell.step}")

    def ours(index):
        arguments, words = inputs[index].call()
        return function(*arguments, **words)

    arguments, words = inputs[0].call()
    return Entry(
        cell=cell,
        ours=Contender(ours, view=_first),
        peers={
            "copy": lambda: copy(cell.bytes, len(inputs), inputs[0].truth),
            "PyTorch": functools.partial(_pytorch, inputs),
        },
        truth=lambda index: inputs[index].truth(),
        sets=len(inputs),
        config=explained(f"moe_{cell.step}", *arguments, **words),
    )


def _pytorch(inputs):
    return Contender(lambda index: inputs[index].pytorch(), view=_first)
