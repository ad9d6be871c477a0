"""The suites gemm (with the layers of models) and epilogue: Kiln's calls, cuBLAS and Triton."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import block_scales
import exact
import torch
from attention_suite import DTYPES, explained, set_count
from cells import OURS
from kiln import jit
from measure import Contender, Entry, Unavailable
from torch.nn import functional

BLOCKS = "f8 blocks"
F8 = ("f8", "f8 fast", BLOCKS)


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    dtype = DTYPES.get(cell.dtype, torch.bfloat16)
    generator = torch.Generator(device="cuda").manual_seed(1)

    def randn(*shape):
        return torch.randn(shape, device="cuda", dtype=dtype, generator=generator)

    def operand(rows, columns, is_transposed):
        """Such a matrix, maybe as the transposed view of one."""
        x = randn(columns, rows).mT if is_transposed else randn(rows, columns)
        return x.to(torch.float8_e4m3fn) if cell.dtype in F8 else x

    sets = set_count(max(cell.bytes for cell in batch))
    if cell.dtype == BLOCKS:
        inputs = [
            block_scales.inputs(randn(cell.m, cell.k), randn(cell.n, cell.k)) for _ in range(sets)
        ]
        return [_entry(cell, inputs) for cell in batch]
    inputs = [
        {
            "a": operand(cell.m, cell.k, cell.layout[0] == "t"),
            "b": operand(cell.n, cell.k, cell.layout[1] == "n"),
            "bias": randn(cell.n),
            "residual": randn(cell.m, cell.n) if len(batch) > 1 else None,
        }
        for _ in range(sets)
    ]
    return [_entry(cell, inputs) for cell in batch]


def parts(epilogue):
    """The operands and the activation that an epilogue's name stands for."""
    names = [] if epilogue == "plain" else epilogue.split("+")
    operands = [name for name in names if name in ("bias", "residual")]
    activations = [name for name in names if name not in operands]
    return operands, activations[0] if activations else None


def _entry(cell, inputs):
    operands, activation = parts(cell.epilogue)
    keywords = {}
    if cell.dtype in ("tf32", "f8 fast"):
        keywords["precision"] = cell.dtype.split()[-1]
    if cell.dtype in F8 and cell.dtype != BLOCKS:
        keywords["scale_a"] = keywords["scale_b"] = torch.ones((), device="cuda")
    if activation:
        keywords["activation"] = activation
    outs = [_poisoned(cell, inputs) for _ in inputs]

    def extra(index):
        if cell.dtype == BLOCKS:
            return block_scales.keywords(inputs[index])
        return {name: inputs[index][name] for name in operands}

    calls = [
        functools.partial(jit.gemm, x["a"], x["b"].mT, out=out, **keywords, **extra(index))
        for index, (x, out) in enumerate(zip(inputs, outs))
    ]

    def truth(index):
        if cell.dtype == BLOCKS:
            return exact.gemm(*block_scales.operands(inputs[index]))
        a, b = inputs[index]["a"], inputs[index]["b"]
        return exact.gemm(a, b, activation=activation, **extra(index))

    peers = {"cuBLAS": cublas, "Triton": triton}
    if cell.dtype == BLOCKS:
        peers = {"cuBLAS": cublas, "DeepGEMM": deep_gemm}
    first = inputs[0]
    return Entry(
        cell=cell,
        ours=Contender(lambda index: calls[index]()),
        peers={name: functools.partial(make, cell, inputs) for name, make in peers.items()},
        truth=truth,
        sets=len(inputs),
        config=explained("gemm", first["a"], first["b"].mT, out=outs[0], **keywords, **extra(0)),
    )


def _poisoned(cell, inputs):
    like = inputs[0]["a"]
    dtype = torch.bfloat16 if cell.dtype in F8 else like.dtype
    columns = cell.n // 2 if cell.epilogue == "swiglu" else cell.n
    return torch.full((cell.m, columns), math.nan, device=like.device, dtype=dtype)


def cublas(cell, inputs):
    """torch.matmul, or addmm where something is added; then PyTorch's activation, in place. Of
    8-bit floats cuBLASLt, through torch._scaled_mm."""
    if cell.dtype == BLOCKS:
        return block_scales.cublas(inputs, [_poisoned(cell, inputs) for _ in inputs])
    if cell.dtype in F8:
        return scaled(cell, inputs)
    operands, activation = parts(cell.epilogue)
    whole = dataclasses.replace(cell, epilogue="plain")  # what is gated comes after
    outs = [_poisoned(whole, inputs) for _ in inputs]
    apply = {
        None: lambda x: x,
        "relu": functional.relu_,
        "silu": functools.partial(functional.silu, inplace=True),
        "gelu": lambda x: torch.ops.aten.gelu_(x),
        "swiglu": lambda x: functional.silu(x[:, : cell.n // 2]).mul_(x[:, cell.n // 2 :]),
    }[activation]

    def call(index):
        x, out = inputs[index], outs[index]
        if operands:
            product = torch.addmm(x[operands[0]], x["a"], x["b"].mT, out=out)
        else:
            product = torch.matmul(x["a"], x["b"].mT, out=out)
        return apply(product)

    return Contender(call)


def scaled(cell, inputs):
    one = torch.ones((), device="cuda")
    outs = [_poisoned(cell, inputs) for _ in inputs]

    def call(index):
        return torch._scaled_mm(
            inputs[index]["a"], inputs[index]["b"].mT, scale_a=one, scale_b=one,
            out_dtype=torch.bfloat16, use_fast_accum=cell.dtype == "f8 fast", out=outs[index],
        )  # fmt: skip

    return Contender(call)


def deep_gemm(cell, inputs):
    return block_scales.deep_gemm(inputs, [_poisoned(cell, inputs) for _ in inputs])


def triton(cell, inputs):
    if cell.dtype in F8 or cell.layout != "nt":
        raise Unavailable("our Triton kernel takes 16-bit and tf32 operands in NT")
    if cell.epilogue != "plain":
        raise Unavailable("our Triton kernel has no epilogues")
    try:
        import triton_gemm as kernel
    except ImportError as error:
        raise Unavailable(f"not installed: {error}") from error
    outs = [_poisoned(cell, inputs) for _ in inputs]
    refusal = kernel.refusal(inputs[0]["a"], inputs[0]["b"], outs[0])
    if refusal:
        raise Unavailable(refusal)
    processors = torch.cuda.get_device_properties(0).multi_processor_count

    def call(index):
        return kernel.gemm(inputs[index]["a"], inputs[index]["b"], outs[index], processors)

    return Contender(call)


def compare_epilogues(results):
    """Adds what each epilogue costs over the plain product, in percent, ours and PyTorch's."""
    plain: dict[str, Any] = next((r["times"] for r in results if r["label"] == "plain"), {})
    for result in results:
        result["over_plain_percent"] = {
            name: (times["median_us"] / plain[name]["median_us"] - 1) * 100
            for name, times in result["times"].items()
            if name in plain and OURS in plain
        }
