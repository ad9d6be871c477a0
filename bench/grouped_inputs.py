"""Inputs of products of rows in groups: one set each, what it stands for, and Kiln's keywords."""

from __future__ import annotations

import math
from typing import Any

import block_scales
import exact
import torch
from group_cells import BLOCKS

DEVICE = "cuda"


def randn(shape, generator):
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, generator=generator)


def matrices(groups, n, k, dtype, generator, factor=1.0):
    """[groups, n, k], N(0, 1) times `factor`, and factors of blocks, [groups, n / 128, k / 128], or
    None. Blocks are quantised group by group: all of them in float32 would not fit."""
    if dtype != BLOCKS:
        return randn((groups, n, k), generator).mul_(factor), None
    values = torch.empty((groups, n, k), dtype=torch.float8_e4m3fn, device=DEVICE)
    blocks = (groups, *(-(-size // block_scales.BLOCK) for size in (n, k)))
    scales = torch.empty(blocks, device=DEVICE)
    for group in range(groups):
        one, scale = block_scales.quantized(
            randn((n, k), generator).mul_(factor), block_scales.BLOCK
        )
        values[group].copy_(one)
        scales[group].copy_(scale)
    return values, scales


def wide(values, scale, rows):
    """What rows or a matrix stand for, in float32; `rows` of them share a scale."""
    return values.float() if scale is None else block_scales.dequantized(values, scale, rows)


class Inputs:
    """One set of a GroupCell: a is [rows, k], or [groups, capacity, k] with counts."""

    def __init__(self, cell, generator):
        self.cell = cell
        lead = (cell.groups, cell.capacity) if cell.capacity else (cell.rows,)
        self.scale_a: Any = None
        a = randn((math.prod(lead), cell.k), generator)
        if cell.dtype == BLOCKS:
            a, scale = block_scales.quantized(a, 1)
            self.scale_a = block_scales.by_columns(scale.view(*lead, -1))
        self.a = a.view(*lead, cell.k)
        self.b, self.scale_b = matrices(cell.groups, cell.n, cell.k, cell.dtype, generator)
        sizes = torch.tensor(cell.sizes, dtype=torch.int32)
        numbers = sizes if cell.capacity else sizes.cumsum(0)
        self.numbers = numbers.to(dtype=torch.int32, device=DEVICE)

    def keywords(self):
        """Kiln's."""
        words = {"counts" if self.cell.capacity else "offsets": self.numbers}
        if self.cell.expected_rows:
            words["expected_rows"] = self.cell.expected_rows
        if self.scale_b is not None:
            words |= {"scale_a": self.scale_a, "scale_b": self.scale_b.mT}
        return words

    def poisoned(self):
        """An output that nothing was written to."""
        shape = (*self.a.shape[:-1], self.cell.n)
        return torch.full(shape, math.nan, dtype=torch.bfloat16, device=self.a.device)

    def rows_of(self, tensor):
        """The rows of each group, as views."""
        if self.cell.capacity:
            return [rows[:size] for rows, size in zip(tensor, self.cell.sizes)]
        return list(tensor.split(list(self.cell.sizes)))

    def joined(self, out):
        """The rows of all groups, one group after the other."""
        return torch.cat(self.rows_of(out)) if self.cell.capacity else out

    def truth(self):
        out = torch.empty(self.cell.rows, self.cell.n, device=self.a.device)
        scales = [None] * self.cell.groups if self.scale_a is None else self.rows_of(self.scale_a)
        start = 0
        for group, (rows, scale) in enumerate(zip(self.rows_of(self.a), scales)):
            if not len(rows):
                continue
            out[start : start + len(rows)] = exact.gemm(wide(rows, scale, 1), self._matrix(group))
            start += len(rows)
        return out

    def _matrix(self, group):
        scale = None if self.scale_b is None else self.scale_b[group]
        return wide(self.b[group], scale, block_scales.BLOCK)

    def dense_keywords(self):
        """The product of as many rows and the first matrix."""
        if self.scale_b is None:
            return {}
        return {"scale_a": self._dense_scale(), "scale_b": self.scale_b[0].mT}

    def _dense_scale(self):
        scale = self.scale_a.flatten(0, -2)[: self.cell.rows]
        return block_scales.by_columns(scale)

    def dense_truth(self):
        rows = self.a.flatten(0, -2)[: self.cell.rows]
        scale = None if self.scale_a is None else self._dense_scale()
        return exact.gemm(wide(rows, scale, 1), self._matrix(0))
