"""Whole layers of experts of the suite groups: Kiln's five or seven calls, and who is beside them.

"graph" is the same calls of ours in a CUDA graph. "loop" is PyTorch's operations expert by expert:
the host must know how many rows each has, and waits for the device to learn it. "grouped_mm" is
PyTorch's grouped products between operations that do not wait. With 8-bit weights activations are
quantised, by 128 columns, before each product.
"""

from __future__ import annotations

import functools
import math

import block_scales
import exact
import torch
from attention_suite import explained, set_count
from group_cells import BLOCKS
from grouped_inputs import DEVICE, matrices, randn, wide
from kiln import jit
from measure import Contender, Entry, Unavailable
from torch.nn import functional

# The truth quantises activations where Kiln does, and Kiln is 0.004 from it. Who rounds them to
# bf16 before gets other 8-bit floats where they lie between two: 0.013.
LIMITS = {BLOCKS: "f8 layer"}


def entries(batch):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    inputs = [Layer(cell, generator) for _ in range(set_count(cell.stored_bytes))]
    return [_entry(cell, inputs) for cell in batch]


def _entry(cell, inputs):
    peers = {"grouped_mm": grouped_mm, "vLLM": vllm, "graph": graph, "loop": loop}
    return Entry(
        cell=cell,
        ours=Contender(lambda index: inputs[index].kiln(inputs[index].out)),
        peers={name: functools.partial(make, cell, inputs) for name, make in peers.items()},
        truth=lambda index: inputs[index].truth(),
        sets=len(inputs),
        config=inputs[0].explained(),
        limit=LIMITS.get(cell.dtype),
    )


class Layer:
    """One set: tokens, logits of the router, and the weights of all experts, gates first."""

    def __init__(self, cell, generator):
        self.cell = cell
        self.x = randn((cell.tokens, cell.hidden), generator)
        shape = (cell.tokens, cell.experts)
        self.logits = torch.randn(shape, device=DEVICE, generator=generator)
        self.up, self.up_scale = matrices(
            cell.experts, 2 * cell.inner, cell.hidden, cell.dtype, generator, cell.hidden**-0.5
        )
        self.down, self.down_scale = matrices(
            cell.experts, cell.hidden, cell.inner, cell.dtype, generator, cell.inner**-0.5
        )
        self.out = self.poisoned()

    def poisoned(self):
        return torch.full_like(self.x, math.nan)

    def kiln(self, out):
        weights, experts = jit.moe_route(self.logits, top_k=self.cell.top_k)
        rows, words, inverse = self._permuted(experts)
        if self.up_scale is None:
            active = jit.gemm(rows, self.up.mT, **words, activation="swiglu")
            results = jit.gemm(active, self.down.mT, **words)
        else:
            both = jit.gemm(rows, self.up.mT, **words)
            active, scale = jit.quantize(both, activation="swiglu", scale_layout="column")
            words |= {"scale_a": scale, "scale_b": self.down_scale.mT}
            results = jit.gemm(active, self.down.mT, **words)
        return jit.moe_unpermute(results, inverse, weights, out=out)

    def _permuted(self, experts):
        """The rows of experts, the keywords of the product that takes them, and `inverse`."""
        permute = functools.partial(jit.moe_permute, num_experts=self.cell.experts)
        if self.up_scale is None:
            rows, offsets, inverse = permute(self.x, experts)
            return rows, {"offsets": offsets}, inverse
        quantised, scale = jit.quantize(self.x)
        rows, offsets, inverse = permute(quantised, experts)
        words = {"offsets": offsets, "scale_a": permute(scale, experts)[0]}
        return rows, {**words, "scale_b": self.up_scale.mT}, inverse

    def explained(self):
        """What Kiln chooses for the first product, which is the larger one."""
        try:
            _, experts = jit.moe_route(self.logits, top_k=self.cell.top_k)
            rows, words, _ = self._permuted(experts)
        except Exception:  # the call will say so
            return None
        if self.up_scale is None:
            words["activation"] = "swiglu"
        return explained("gemm", rows, self.up.mT, **words)

    def routed(self):
        """Weights and experts of each token by PyTorch's operations."""
        values, experts = torch.topk(self.logits, self.cell.top_k)
        return torch.softmax(values, -1), experts

    def truth(self):
        """In float32; with 8-bit weights activations are quantised where Kiln does it, the second
        time from bf16."""
        weights, experts = self.routed()
        out = torch.zeros(self.x.shape, device=self.x.device)
        x = self.x.float() if self.up_scale is None else _rounded(self.x)
        for expert in range(self.cell.experts):
            tokens, choices = (experts == expert).nonzero(as_tuple=True)
            if not len(tokens):
                continue
            both = exact.gemm(x[tokens], self._matrix(self.up, self.up_scale, expert))
            if self.up_scale is not None:
                both = both.bfloat16().float()
            gate, up = both.chunk(2, -1)
            active = functional.silu(gate) * up
            if self.up_scale is not None:
                active = _rounded(active)
            result = exact.gemm(active, self._matrix(self.down, self.down_scale, expert))
            out.index_add_(0, tokens, result * weights[tokens, choices, None])
        return out

    def _matrix(self, values, scales, expert):
        scale = None if scales is None else scales[expert]
        return wide(values[expert], scale, block_scales.BLOCK)


def _rounded(x):
    """x as its 8-bit floats and scales of 128 columns stand for it."""
    values, scale = block_scales.quantized(x, 1)
    return block_scales.dequantized(values, scale, 1)


def graph(cell, inputs):
    """Kiln's calls, captured once for each set of inputs."""
    replays = []
    for x in inputs:
        out = x.poisoned()
        x.kiln(out)  # compiles
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            x.kiln(out)
        out.fill_(math.nan)
        replays.append((captured, out))

    def call(index):
        captured, out = replays[index]
        captured.replay()
        return out

    return Contender(call)


def _only_bf16(cell):
    if cell.dtype == BLOCKS:
        raise Unavailable("PyTorch has no products with scales of blocks for it")


def loop(cell, inputs):
    _only_bf16(cell)

    def call(index):
        x = inputs[index]
        weights, experts = x.routed()
        weights, numbers = weights.flatten().to(x.x.dtype), experts.flatten()
        order = numbers.argsort(stable=True)
        out, start = torch.zeros_like(x.x), 0
        for expert, count in enumerate(torch.bincount(numbers, minlength=cell.experts).tolist()):
            if count == 0:
                continue
            pairs = order[start : start + count]
            start += count
            tokens = pairs // cell.top_k
            rows = torch.index_select(x.x, 0, tokens)
            gate, up = torch.matmul(rows, x.up[expert].mT).chunk(2, -1)
            result = torch.matmul(functional.silu(gate).mul_(up), x.down[expert].mT)
            out.index_add_(0, tokens, result.mul_(weights[pairs, None]))
        return out

    return Contender(call)


def grouped_mm_of_pytorch():
    found = getattr(functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if found is None:
        raise Unavailable("this PyTorch has no grouped_mm")
    return found


def grouped_mm(cell, inputs):
    _only_bf16(cell)
    multiply = grouped_mm_of_pytorch()
    every = torch.arange(cell.experts, device=DEVICE)

    def call(index):
        x = inputs[index]
        weights, experts = x.routed()
        numbers, order = experts.flatten().sort(stable=True)
        offsets = torch.searchsorted(numbers, every, right=True, out_int32=True)
        rows = torch.index_select(x.x, 0, order // cell.top_k)
        gate, up = multiply(rows, x.up.mT, offs=offsets).chunk(2, -1)
        results = multiply(functional.silu(gate).mul_(up), x.down.mT, offs=offsets)
        results = torch.index_select(results, 0, order.argsort()).unflatten(0, (-1, cell.top_k))
        return torch.bmm(weights.to(results.dtype).unsqueeze(1), results).squeeze(1)

    return block_scales.tried(call)


def vllm(cell, inputs):
    """Its fused experts, after its own choice of experts."""
    try:
        from vllm.model_executor.layers.fused_moe import fused_experts, fused_topk
    except Exception as error:  # what it imports fails in many ways
        raise Unavailable(f"vLLM's fused_experts are not installed: {error}") from error
    words = [_words_of_vllm(x) for x in inputs]

    def call(index):
        x = inputs[index]
        weights, experts = fused_topk(x.x, x.logits, cell.top_k, True)[:2]
        return fused_experts(x.x, x.up, x.down, weights, experts, **words[index])

    return block_scales.tried(call)


def _words_of_vllm(x):
    if x.up_scale is None:
        return {}
    scales = {"w1_scale": x.up_scale, "w2_scale": x.down_scale}
    scales["block_shape"] = [block_scales.BLOCK, block_scales.BLOCK]
    try:
        from vllm.model_executor.layers.fused_moe.config import fp8_w8a8_moe_quant_config
    except ImportError:  # before 0.11
        return {"use_fp8_w8a8": True, **scales}
    return {"quant_config": fp8_w8a8_moe_quant_config(**scales)}
