"""The suite groups: jit.gemm with offsets and counts beside PyTorch's grouped_mm and DeepGEMM.

Two more stand for what grouping costs: "dense" is our own product of as many rows and one matrix,
and "loop" is a torch.matmul for each group that has rows, whose sizes the host knows.
"""

from __future__ import annotations

import functools
import math

import block_scales
import exact
import moe_layer
import torch
from attention_suite import explained, set_count
from group_cells import BLOCKS, LayerCell
from grouped_inputs import DEVICE, Inputs
from kiln import jit
from measure import Contender, Entry, Unavailable

DENSE_ROWS = 128  # of a group, on average
# DeepGEMM's functions by (scales of blocks, counts): those of version 2, then of others.
DEEP_GEMM = {
    (True, False): (
        "m_grouped_fp8_gemm_nt_contiguous",
        "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous",
    ),
    (False, False): ("m_grouped_bf16_gemm_nt_contiguous",),
    (True, True): (
        "m_grouped_fp8_gemm_nt_masked",
        "fp8_m_grouped_gemm_nt_masked",
        "m_grouped_gemm_fp8_fp8_bf16_nt_masked",
    ),
    (False, True): ("m_grouped_bf16_gemm_nt_masked", "bf16_m_grouped_gemm_nt_masked"),
}
ALIGNMENTS = ("get_mk_alignment_for_contiguous_layout", "get_m_alignment_for_contiguous_layout")
ALIGNMENT = 128  # where DeepGEMM says nothing


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    if isinstance(cell, LayerCell):
        return moe_layer.entries(batch)
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    inputs = [Inputs(cell, generator) for _ in range(set_count(cell.stored_bytes))]
    return [_entry(cell, inputs) for cell in batch]


def _entry(cell, inputs):
    outs = [x.poisoned() for x in inputs]

    def call(index):
        x = inputs[index]
        return jit.gemm(x.a, x.b.mT, out=outs[index], **x.keywords())

    peers = {"grouped_mm": grouped_mm, "DeepGEMM": deep_gemm, "dense": dense, "loop": loop}
    first = inputs[0]
    return Entry(
        cell=cell,
        ours=Contender(call, view=first.joined),
        peers={name: functools.partial(make, cell, inputs) for name, make in peers.items()},
        truth=lambda index: inputs[index].truth(),
        sets=len(inputs),
        config=explained("gemm", first.a, first.b.mT, out=outs[0], **first.keywords()),
    )


def grouped_mm(cell, inputs):
    if cell.dtype == BLOCKS:
        raise Unavailable("PyTorch's grouped products take 8-bit floats with scales of rows alone")
    if cell.capacity:
        raise Unavailable("has no counts: it would multiply the whole capacity")
    multiply = moe_layer.grouped_mm_of_pytorch()

    def call(index):
        x = inputs[index]
        return multiply(x.a, x.b.mT, offs=x.numbers)

    return block_scales.tried(call)


def loop(cell, inputs):
    """A product for each group that has rows; no tensor on the device says how many."""
    if cell.dtype == BLOCKS:
        raise Unavailable("torch.matmul has no scales")
    outs = [x.poisoned() for x in inputs]
    calls = [
        [
            (rows, matrix.mT, own)
            for rows, matrix, own in zip(x.rows_of(x.a), x.b, x.rows_of(out))
            if len(rows)
        ]
        for x, out in zip(inputs, outs)
    ]

    def call(index):
        for rows, matrix, own in calls[index]:
            torch.matmul(rows, matrix, out=own)
        return outs[index]

    return Contender(call, view=inputs[0].joined)


def dense(cell, inputs):
    """Our product of as many rows, all with the first group's matrix. It is checked here; what it
    shows as its result is the truth of the groups."""
    if cell.rows < DENSE_ROWS * cell.groups:
        raise Unavailable(f"under {DENSE_ROWS} rows a group, the bytes of many matrices decide")
    calls = [
        functools.partial(
            jit.gemm, x.a.flatten(0, -2)[: cell.rows], x.b[0].mT,
            out=x.a.new_full((cell.rows, cell.n), math.nan, dtype=torch.bfloat16),
            **x.dense_keywords(),
        )
        for x in inputs
    ]  # fmt: skip
    exact.judge(calls[0](), inputs[0].dense_truth(), cell.dtype)
    return Contender(lambda index: calls[index](), view=lambda out: inputs[0].truth())


def deep_gemm(cell, inputs):
    """By offsets, DeepGEMM wants each group to begin at a multiple of its tile's rows. It is given
    rows that were padded so beforehand, which is not timed, and computes the padding, too."""
    try:
        import deep_gemm as peer
    except ImportError as error:
        raise Unavailable(f"DeepGEMM is not installed: {error}") from error
    names = DEEP_GEMM[cell.dtype == BLOCKS, bool(cell.capacity)]
    multiply = next((getattr(peer, name) for name in names if hasattr(peer, name)), None)
    if multiply is None:
        raise Unavailable(f"this DeepGEMM has no {names[0]}")

    if cell.capacity:
        outs = [x.poisoned() for x in inputs]
        expected = cell.expected_rows or -(-cell.rows // cell.groups)

        def masked(index):
            x = inputs[index]
            a = (x.a, x.scale_a) if cell.dtype == BLOCKS else x.a
            multiply(a, _matrices(x), outs[index], x.numbers, expected)
            return outs[index]

        return block_scales.tried(masked, inputs[0].joined)

    sets = [Aligned(x, alignment(peer)) for x in inputs]

    def contiguous(index):
        x = sets[index]
        multiply(x.a, _matrices(inputs[index]), x.out, x.groups)
        return x.out

    return block_scales.tried(contiguous, sets[0].joined)


def _matrices(x):
    return (x.b, x.scale_b) if x.cell.dtype == BLOCKS else x.b


def alignment(peer):
    """To how many rows this DeepGEMM wants groups to be aligned."""
    for place in (peer, getattr(peer, "utils", None)):
        for name in ALIGNMENTS:
            if hasattr(place, name):
                return int(getattr(place, name)())
    return ALIGNMENT


class Aligned:
    """The rows of Inputs with each group padded to a multiple of `step` rows of zeros, and the
    number of the group that each row belongs to, -1 for padding."""

    def __init__(self, x, step):
        self.sizes, self.starts, rows = x.cell.sizes, [], 0
        for size in self.sizes:
            self.starts.append(rows)
            rows += -(-size // step) * step
        self.groups = torch.full((rows,), -1, dtype=torch.int32, device=x.a.device)
        for group, part in enumerate(self._parts(self.groups)):
            part.fill_(group)
        self.a = self._padded(x, x.a, rows)
        if x.cell.dtype == BLOCKS:
            self.a = self.a, block_scales.by_columns(self._padded(x, x.scale_a, rows))
        shape = (rows, x.cell.n)
        self.out = torch.full(shape, math.nan, dtype=torch.bfloat16, device=x.a.device)

    def _parts(self, tensor):
        """The rows of each group, without padding."""
        return [tensor[at : at + size] for at, size in zip(self.starts, self.sizes)]

    def _padded(self, x, tensor, rows):
        padded = torch.zeros((rows, tensor.shape[1]), dtype=tensor.dtype, device=tensor.device)
        for part, own in zip(self._parts(padded), x.rows_of(tensor)):
            part.copy_(own)
        return padded

    def joined(self, out):
        return torch.cat(self._parts(out))
