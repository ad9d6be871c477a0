"""The mask function of kiln.integrations.transformers: masks as a few numbers.

A mask that is causal, a window or bidirectional, with or without padding, becomes an int32 tensor
of four dimensions, [rows, kind, keys, entries], because transformers hands on any tensor of four
dimensions as it is, through `generate` and `torch.compile`:

    rows 0  the first `keys` keys of all sequences; of a bidirectional window, `keys` is its reach.
            There is no element, so that nothing is computed
    rows 1  [0, 0, 0, b]: how many keys sequence b has. Of a packed kind, [0, 0, 0, :] are the
            offsets of the sequences, as jit.flash_attention_varlen takes them
    rows 2  and [1, 0, 0, b]: how many of the first of these are padding

`kind` is one of those below. Sizes tell it because the host knows sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import masking_utils
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

CAUSAL, WINDOW, FULL, FULL_WINDOW, PACKED_CAUSAL, PACKED_WINDOW = range(1, 7)
PACKED = {CAUSAL: PACKED_CAUSAL, WINDOW: PACKED_WINDOW}

_BOTH_WAYS = getattr(masking_utils, "sliding_window_bidirectional_overlay", None)
_REMAP = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
# transformers composes masks of closures, and a closure is known by its code.
_ALL_OF = masking_utils.and_masks(causal_mask_function).__code__
_WINDOW_PART = masking_utils.sliding_window_overlay(1).__code__
_PACKED_PART = masking_utils.packed_sequence_mask_function(torch.zeros(1, 1)).__code__
_FULL_WINDOW_PART = _BOTH_WAYS(1).__code__ if _BOTH_WAYS else None
_REMAPPED = _REMAP(causal_mask_function, torch.zeros(1, 1)).__code__ if _REMAP else None


def is_encoded(mask: torch.Tensor) -> bool:
    """Whether a mask is one of this module's."""
    return mask.dtype == torch.int32


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    device: Any = "cpu",
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> torch.Tensor | None:
    """Returns a mask as the module says, or bool [batch, 1, q_length, kv_length] where numbers
    cannot tell it, or None for one without padding that is causal or not, as the layer says.

    q_offset, kv_offset   the positions of the first query and key; q_offset may be a tensor
    attention_mask        bool [batch, keys]: the keys that are not padding
    allow_is_causal_skip  False for steps of a static cache, which keep their shapes, and for models
                          that compute with the mask themselves
    options               allow_is_bidirectional_skip is False for such models, too
    """
    kind, detail = _kind_of(mask_function)
    may_skip_full = options.pop("allow_is_bidirectional_skip", True)
    # A model that computes with a mask needs its elements. A step of one token could also be that
    # of a static cache, which is far more common.
    if kind == FULL:
        needs_elements = not may_skip_full
    else:
        needs_elements = kind in (CAUSAL, WINDOW) and q_length > 1 and not allow_is_causal_skip
    if kind in PACKED.values() and q_length == kv_length:
        return _numbers(kind, _offsets(detail, batch_size))
    if kind == FULL_WINDOW and attention_mask is None and q_length == kv_length:
        return _all_keys(kind, detail, batch_size, device)
    if kind in (CAUSAL, WINDOW, FULL) and not needs_elements:
        keys = kv_length if kind == FULL else q_offset + q_length - kv_offset
        told, padding = _padding(attention_mask, kv_offset, kv_length, keys, kind)
        if told and kind == FULL:
            return _numbers(kind, *padding) if padding else None
        if told:
            fixed = q_length == 1 and not allow_is_causal_skip
            if isinstance(keys, int) and not padding and not fixed:
                plain = kind == CAUSAL and keys == kv_length
                return None if plain else _all_keys(kind, keys, batch_size, device)
            return _numbers(kind, _used(keys, batch_size, device), *padding[1:])
    return masking_utils.sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        device=device,
        **options,
    )


def _all_keys(kind: int, keys: int, batch: int, device: Any) -> torch.Tensor:
    return torch.empty((0, kind, keys, batch), dtype=torch.int32, device=device)


def _numbers(kind: int, *rows: torch.Tensor) -> torch.Tensor:
    return torch.stack(rows)[:, None, None].repeat(1, kind, 1, 1)


def _used(keys: Any, batch: int, device: Any) -> torch.Tensor:
    """The number of keys of each sequence, int32 [batch]; keys may be a tensor of one number."""
    if isinstance(keys, torch.Tensor):
        return keys.to(device=device, dtype=torch.int32).expand(batch)
    return torch.full((batch,), keys, dtype=torch.int32, device=device)


def _kind_of(function: Any) -> tuple[int, Any]:
    """The kind of a mask with, of a bidirectional window, its reach and, of packed sequences, the
    number of the sequence of each token; 0 for any other mask."""
    if function is causal_mask_function:
        return CAUSAL, None
    if function is bidirectional_mask_function:
        return FULL, None
    # PyTorch's compiler cannot look into a closure that it traces.
    if torch.compiler.is_compiling() or getattr(function, "__code__", None) != _ALL_OF:
        return 0, None
    (conditions,) = _captured(function)
    parts = {getattr(part, "__code__", None): part for part in conditions}
    if len(parts) != 2:
        return 0, None
    if _PACKED_PART in parts:
        (ids,) = _captured(parts.pop(_PACKED_PART))
        (base,) = parts.values()
        if base.__code__ == _REMAPPED:
            base = next(part for part in _captured(base) if callable(part))
        return PACKED.get(_kind_of(base)[0], 0), ids
    if _WINDOW_PART in parts and causal_mask_function in conditions:
        return WINDOW, None
    if _FULL_WINDOW_PART in parts and bidirectional_mask_function in conditions:
        return FULL_WINDOW, _captured(parts[_FULL_WINDOW_PART])[0]
    return 0, None


def _captured(closure: Any) -> list[Any]:
    return [cell.cell_contents for cell in closure.__closure__]


def _padding(
    mask: torch.Tensor | None, offset: int, length: int, keys: Any, kind: int
) -> tuple[bool, tuple[torch.Tensor, ...]]:
    """Whether numbers can tell a padding mask of the keys from offset on; and the ends and the
    beginnings of the sequences in them, int32 [batch] each, if any has padding.

    Of a causal mask the ends say nothing: only queries that are padding see keys behind them.
    """
    if mask is None:
        return True, ()
    if torch.compiler.is_compiling() or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
        return False, ()  # the host must not wait for a tensor's values
    shown = mask[:, offset : offset + length].bool()
    short = isinstance(keys, int) and shown.shape[1] < keys  # and the last keys are hidden
    if not short and shown.all():
        return True, ()
    rises = (shown[:, 1:] & ~shown[:, :-1]).sum(1) + shown[:, 0]
    if (short and kind != FULL) or (rises > 1).any():
        return False, ()
    first = shown.int().argmax(1).int()
    return True, (first + shown.sum(1, dtype=torch.int32), first)


def _offsets(sequence_ids: torch.Tensor, batch: int) -> torch.Tensor:
    """The offsets of packed sequences, int32 [sequences + 1], of the numbers [batch, tokens] of the
    sequence that each token belongs to. The rows of a batch are told apart, too."""
    ids = sequence_ids.expand(batch, -1)
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    first = starts.flatten().nonzero().flatten()
    return torch.cat([first, first.new_tensor([ids.numel()])]).int()
