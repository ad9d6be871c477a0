"""The suite pdl: the GEMMs of decoding steps one after another in a replayed graph, as ordinary and
as programmatic launches, beside cuBLAS in a graph of its own.

Each reads what the one before has written; where that has more columns than it needs, the first of
them. Attention, norms and activations, which a model has in between, are left out.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from attention_suite import explained, set_count
from cells import OURS
from exact import full_precision
from kiln import jit
from measure import Contender, Entry

PDL: dict[str, Any] = {"off": False, "on": True, "weights": "weights"}


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)
    inputs = [_Chain.made(cell, generator) for _ in range(set_count(cell.bytes))]
    return [_entry(cell, inputs) for cell in batch]


@dataclasses.dataclass
class _Chain:
    """The first input, and the weights [n, k] of each GEMM."""

    x: torch.Tensor
    weights: list[torch.Tensor]

    @classmethod
    def made(cls, cell, generator):
        def randn(rows, columns, scale=1.0):
            x = torch.randn(rows, columns, device="cuda", generator=generator)
            return (x * scale).to(torch.bfloat16)

        # The elements of every product are N(0, 1) like those of the first input.
        weights = [randn(n, k, k**-0.5) for n, k in cell.shapes]
        return cls(randn(cell.m, cell.shapes[0][1]), weights)

    def outputs(self):
        rows = len(self.x)
        return [torch.full((rows, len(w)), float("nan"), **_like(self.x)) for w in self.weights]

    def run(self, multiply, outs):
        x = self.x
        for weight, out in zip(self.weights, outs):
            multiply(x[:, : weight.shape[1]], weight.mT, out=out)
            x = out
        return x

    def truth(self):
        x = self.x.float()
        with full_precision():
            for weight in self.weights:
                x = x[:, : weight.shape[1]] @ weight.float().mT
        return x


def _like(x):
    return {"device": x.device, "dtype": x.dtype}


def _entry(cell, inputs):
    first = inputs[0]
    multiply = functools.partial(jit.gemm, pdl=PDL[cell.pdl])
    return Entry(
        cell=cell,
        ours=_graphs(inputs, multiply),
        peers={"cuBLAS": lambda: _graphs(inputs, torch.matmul)},
        truth=lambda index: inputs[index].truth(),
        sets=len(inputs),
        config=explained("gemm", first.x, first.weights[0].mT, pdl=PDL[cell.pdl]),
    )


def _graphs(inputs, multiply):
    """Replays of a graph for each input set."""
    graphs = []
    for chain in inputs:
        outs = chain.outputs()
        chain.run(multiply, outs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = chain.run(multiply, outs)
        graphs.append((graph, result, outs))

    def replay(index):
        graph, result, _ = graphs[index]
        graph.replay()
        return result

    return Contender(replay)


def compare(results):
    """Adds microseconds for each kernel, ours and cuBLAS's, and the time of ordinary launches over
    ours."""
    off = {r["shape"]["m"]: r["times"].get(OURS) for r in results if r["shape"]["pdl"] == "off"}
    for result in results:
        count = len(result["shape"]["shapes"])
        per_kernel = {name: times["median_us"] / count for name, times in result["times"].items()}
        ordinary = off.get(result["shape"]["m"])
        if ordinary and OURS in per_kernel:
            per_kernel["off"] = ordinary["median_us"] / result["times"][OURS]["median_us"]
        result["of_a_kernel"] = per_kernel
