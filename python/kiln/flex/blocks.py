"""A BlockMask's lists as the tables that kernels read, kept as long as the lists stay the same."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core

SKIPPED, PARTIAL, FULL = 0, 1, 2
MIXED = 3  # of several heads together: a block that is not the same of all
OVERHANG = 256  # keys: no tile reaches as far behind the last one
LARGE = 1 << 30  # the block size by which PyTorch says that there are no blocks


class Tables(dict[str, Any]):
    """A kernel reads these of a BlockMask: a variant's tensors and numbers by their names. Unlike a
    dict it may be referred to weakly."""


NO_TABLES = Tables()


@dataclass
class _Known:
    """The tables of a BlockMask, and all that decided them."""

    block_mask: weakref.ref[Any]
    lists: tuple[Any, ...]
    state: tuple[Any, ...]
    tables: Tables


_known: dict[int, _Known] = {}  # by the id of a BlockMask, as long as that lives


def tables_of(block_mask: Any, query: Any, key: Any) -> Tables:
    """The tables of the BlockMask of a call with these queries and keys [batch, heads, length, ..],
    which it must suit: `blocks` [batch, planes, query blocks, key blocks and some skipped ones]
    says what each block is, `bounds` [.., query blocks, 2] from which key to which one a query
    block sees any. With several heads, a last plane stands for all of them together."""
    lists = (
        block_mask.kv_num_blocks,
        block_mask.kv_indices,
        block_mask.full_kv_num_blocks,
        block_mask.full_kv_indices,
    )
    size = block_mask.BLOCK_SIZE
    known = _known.get(id(block_mask))
    if known is not None and known.block_mask() is block_mask:
        # Tensors are told apart by identity: == would compare their elements.
        counts, indices, full_counts, full_indices = known.lists
        is_same = counts is lists[0] and indices is lists[1]
        is_same = is_same and full_counts is lists[2] and full_indices is lists[3]
        if is_same and known.state == _state(lists, size, query, key):
            return known.tables
    check_blocks(block_mask, query, key)
    tables = Tables(_make(lists, size, query.size(2), key.size(2)))
    # Tensors of torch.inference_mode() do not count what is written to them.
    is_counted = not any(tensor.is_inference() for tensor in lists if tensor is not None)
    if is_counted and not _is_capturing(lists[0]):
        number = id(block_mask)
        reference = weakref.ref(block_mask, lambda _: _known.pop(number, None))
        _known[number] = _Known(reference, lists, _state(lists, size, query, key), tables)
    return tables


def are_kept(tables: Tables, block_mask: Any) -> bool:
    """Whether tables_of() returns these again, as long as nothing changes that decides them."""
    known = _known.get(id(block_mask))
    return known is not None and known.tables is tables


def block_size_of(block_mask: Any) -> tuple[int, int]:
    """Rows and keys of a block."""
    return int(block_mask.BLOCK_SIZE[0]), int(block_mask.BLOCK_SIZE[1])


def check_blocks(block_mask: Any, query: Any, key: Any) -> None:
    """Refuses a BlockMask that was made for other queries and keys than these."""
    counts = block_mask.kv_num_blocks
    if counts.dim() != 3:
        raise ValueError(
            "flex_attention: block_mask must have lists of shape [batch, heads, query blocks, ..], "
            f"got kv_num_blocks of {list(counts.shape)}"
        )
    for dimension, name in ((0, "batch"), (1, "heads")):
        if counts.size(dimension) not in (1, query.size(dimension)):
            raise ValueError(
                f"flex_attention: block_mask must have the {name} of query, "
                f"{query.size(dimension)}, or 1, got {counts.size(dimension)}"
            )
    lengths = (query.size(2), key.size(2))
    size = tuple(block_mask.BLOCK_SIZE)
    if size != (LARGE, LARGE) and tuple(block_mask.seq_lengths) != lengths:
        raise ValueError(
            f"flex_attention: block_mask was made for lengths {tuple(block_mask.seq_lengths)}, and "
            f"query and key have {lengths}; make one for these with create_block_mask()"
        )
    if counts.size(2) * size[0] < lengths[0]:
        raise ValueError(
            f"flex_attention: block_mask lists {counts.size(2)} blocks of {size[0]} queries, which "
            f"are fewer than {lengths[0]} queries"
        )
    if counts.device != query.device:
        raise ValueError(
            f"flex_attention: block_mask is on {counts.device} and query on {query.device}; pass "
            "block_mask.to(query.device)"
        )


def _state(lists: tuple[Any, ...], size: Any, query: Any, key: Any) -> tuple[Any, ...]:
    """All that decides the tables of the same lists: how often each has been written to, the sizes
    and the device; the stream too, as another one would not wait for the work that makes them."""
    counts, indices, full_counts, full_indices = lists
    versions: tuple[int, ...] = (counts._version, indices._version)
    if full_counts is not None:
        versions += full_counts._version, full_indices._version
    device = query.device
    stream = _core.current_stream(counts, device.index) if device.type == "cuda" else None
    return versions, size, query.shape, key.shape, device, stream


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
