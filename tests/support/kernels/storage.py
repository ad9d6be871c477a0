"""Tensors in awkward places: NaN around them, strides of every kind, bases off by one element."""

import dataclasses
import math
import os

import grid
import torch

# Where the tensors are.
DEVICE = torch.device("cuda" if grid.on_gpu() else "cpu")

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
F8_DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
INPUT_DTYPES = DTYPES | F8_DTYPES  # of a GEMM's a and b


@dataclasses.dataclass
class Placed:
    """A view and the NaN-filled buffer that it lies in."""

    view: torch.Tensor
    buffer: torch.Tensor

    def check_untouched(self, what):
        outside = torch.ones_like(self.buffer, dtype=torch.bool)
        v = self.view
        if v.numel():
            outside.as_strided(v.shape, v.stride(), v.storage_offset()).fill_(False)
        written = int((~torch.isnan(self.buffer.float()[outside])).sum())
        assert written == 0, f"{what}: {written} elements outside of the output were written"


def _nans(shape, dtype):
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)


def place(kind, shape, dtype):
    """An all-NaN tensor of `shape` in a buffer that has NaN around it.

    plain: contiguous. guarded: a slice in every dimension, 16-byte aligned. permuted: the middle
    dimensions stored in the other order. head_slice: every third slice of dimension -2. offset: the
    base off by one element. odd: rows one element apart from aligned.
    """
    *outer, last = shape
    if kind == "plain":
        # Whole 16-byte words: cp.async never uses what lies beyond the tensor in the last of them,
        # but compute-sanitizer counts all 16 bytes as read.
        count = math.prod(shape)
        buffer = _nans([(count + 7) // 8 * 8], dtype)
        return Placed(buffer[:count].view(shape), buffer)
    if kind == "guarded":
        unit = max(8, 16 // dtype.itemsize)
        buffer = _nans(
            [size + 3 for size in outer] + [(last + unit - 1) // unit * unit + 3 * unit], dtype
        )
        cut = (*tuple(slice(1, 1 + size) for size in outer), slice(unit, unit + last))
        return Placed(buffer[cut], buffer)
    if kind == "permuted":
        buffer = _nans([shape[2], shape[0], shape[1], last], dtype)
        return Placed(buffer.permute(1, 2, 0, 3), buffer)
    if kind == "head_slice":
        buffer = _nans([*outer[:-1], outer[-1], 3, last], dtype)
        return Placed(buffer[..., 1, :], buffer)
    if kind == "offset":
        count = math.prod(shape)
        buffer = _nans([count + 2], dtype)
        return Placed(buffer[1 : 1 + count].view(shape), buffer)
    if kind == "odd":
        buffer = _nans([*outer, last + 1], dtype)
        return Placed(buffer[..., :last], buffer)
    raise ValueError(f"unknown storage {kind!r}")


def filled(kind, values):
    """`values` copied into storage of this kind, NaN around them."""
    placed = place(kind, list(values.shape), values.dtype)
    placed.view.copy_(values)
    return placed.view


def randn(shape, dtype, seed, scale=1.0):
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    values = torch.randn(shape, dtype=torch.float32, device=DEVICE, generator=generator)
    return (values * scale).to(dtype)


def leave_in_free_memory(size, byte):
    """What the next allocation of `size` bytes finds, in it the workspace of the next call."""
    garbage = torch.full([size], byte, dtype=torch.uint8, device=DEVICE)
    address = garbage.data_ptr()
    del garbage
    if DEVICE.type == "cuda" and "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ:
        # The allocator hands it out again, to this call as to the next one of its size.
        assert torch.empty([size], dtype=torch.uint8, device=DEVICE).data_ptr() == address
