"""A BlockMask's lists as the tables that kernels read, kept as long as the lists stay the same."""

from __future__ import annotations

import weakref
from typing import Any

import torch

SKIPPED, PARTIAL, FULL = 0, 1, 2
MIXED = 3  # of several heads together: a block that is not the same of all
OVERHANG = 256  # keys: no tile reaches as far behind the last one
LARGE = 1 << 30  # the block size by which PyTorch says that there are no blocks

_tables: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def tables_of(block_mask: Any, len_q: int, len_kv: int) -> dict[str, Any]:
    """A kernel reads these of the BlockMask: `blocks` [batch, planes, query blocks, key blocks and
    some skipped ones] says what each block is, `bounds` [.., query blocks, 2] from which key to
    which one a query block sees any. With several heads, a last plane stands for all of them
    together."""
    lists = (
        block_mask.kv_num_blocks,
        block_mask.kv_indices,
        block_mask.full_kv_num_blocks,
        block_mask.full_kv_indices,
    )
    state = _state(lists, (len_q, len_kv, *block_mask.BLOCK_SIZE))
    if state is not None:
        known = _tables.get(block_mask)
        if known is not None and _same(known[0], state):
            return dict(known[1])
    tables = _make(lists, block_mask.BLOCK_SIZE, len_q, len_kv)
    if state is not None and not _is_capturing(lists[0]):
        _tables[block_mask] = (state, tables)
    return dict(tables)


def _state(lists: tuple[Any, ...], sizes: tuple[int, ...]) -> tuple[Any, ...] | None:
    """All that decides the tables: the lists, how often each has been written to, and the sizes;
    the stream too, as another one would not wait for the work that makes them. None for tensors of
    torch.inference_mode(), which do not count what is written."""
    given = [tensor for tensor in lists if tensor is not None]
    if any(tensor.is_inference() for tensor in given):
        return None
    device = given[0].device
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    return given, [tensor._version for tensor in given], sizes, stream


def _same(known: tuple[Any, ...], state: tuple[Any, ...]) -> bool:
    return (
        len(known[0]) == len(state[0])
        and all(old is new for old, new in zip(known[0], state[0], strict=True))
        and known[1:] == state[1:]
    )


def _is_capturing(tensor: torch.Tensor) -> bool:
    """Whether a CUDA graph is being captured, whose work has not run yet."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _make(lists: tuple[Any, ...], size: tuple[int, int], len_q: int, len_kv: int) -> dict[str, Any]:
    rows, columns = max(1, -(-len_q // size[0])), max(1, -(-len_kv // size[1]))
    with torch.no_grad():
        partial = _dense(lists[0], lists[1], rows, columns)
        states = partial.to(torch.uint8) * PARTIAL
        if lists[2] is not None:
            states = torch.where(_dense(lists[2], lists[3], rows, columns), FULL, states)
        heads = states.size(1)
        if heads > 1:
            is_same = (states == states[:, :1]).all(1)
            together = torch.where(is_same, states[:, 0], MIXED)
            states = torch.cat([states, together[:, None].to(torch.uint8)], 1)
        states = states.to(torch.uint8)
        bounds = _bounds(states, size[1], len_kv)
        blocks = torch.nn.functional.pad(states, (0, OVERHANG // size[1] + 1)).contiguous()
        return {"blocks": blocks, "bounds": bounds, "mask_heads": heads}


def _dense(counts: torch.Tensor, indices: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Whether each block is in the list. What is behind the count of a list is not read."""
    counts, indices = counts[:, :, :rows], indices[:, :, :rows]
    places = torch.arange(indices.size(-1), device=indices.device)
    listed = (places < counts[..., None]) & (indices >= 0) & (indices < columns)
    targets = torch.where(listed, indices, columns).long()
    dense = torch.zeros(*counts.shape, columns + 1, dtype=torch.bool, device=indices.device)
    return dense.scatter_(-1, targets, True)[..., :columns]


def _bounds(blocks: torch.Tensor, size: int, len_kv: int) -> torch.Tensor:
    columns = blocks.size(-1)
    places = torch.arange(columns, device=blocks.device)
    seen = blocks != SKIPPED
    first = torch.where(seen, places, columns).amin(-1)
    last = torch.where(seen, places, -1).amax(-1)
    keys = (torch.stack([first, last + 1], -1) * size).clamp(max=len_kv)
    return keys.to(torch.int32).contiguous()
