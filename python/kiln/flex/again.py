"""Calls that come again have their variants from here: where the callables hold the same objects
and the tensors have the same sizes, nothing of a call is checked or looked up a second time."""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

from .blocks import Tables, block_size_of, tables_of
from .places import Places, places_of
from .plan import Bound, check_grad, kept_plan, memory_of
from .reads import reads_of

MOST_CALLABLES, MOST_SIZES = 1024, 64  # when there are more, all are forgotten
MOST_CHANGES = 8  # of what callables hold: then they are not looked at again
_KINDS = (types.FunctionType, types.NoneType)

Three = tuple[Any, Any, Any]  # score_mod, mask_mod and block_mask


class _Call:
    """A call with certain sizes keeps all that decided its variant: the places where its callables
    hold what they read, the tensors among that with their sizes and memory, and a BlockMask's
    tables."""

    __slots__ = ("bound", "places", "tables", "tensors")

    def __init__(
        self, places: Places, tensors: list[torch.Tensor], tables: Tables | None, bound: Bound
    ) -> None:
        self.places = places
        self.tensors = [(weakref.ref(x), x.shape, memory_of(x)) for x in tensors]
        self.tables = None if tables is None else weakref.ref(tables)
        self.bound = weakref.ref(bound)

    def variant(self, block_mask: Any, query: Any, key: Any) -> Any:
        """The variant, if all that decided it is the same."""
        if not self.places.hold_the_same():
            return None
        for reference, shape, memory in self.tensors:
            tensor = reference()
            if tensor is None or tensor.shape != shape or memory_of(tensor) != memory:
                return None
        if self.tables is not None and tables_of(block_mask, query, key) is not self.tables():
            return None
        bound = self.bound()
        if bound is None:
            return None
        if bound.read and torch.is_grad_enabled():
            check_grad(
                [tensor for tensor in (known() for known in bound.read) if tensor is not None]
            )
        return bound.variant


class _Callables:
    """The callables of calls that came again, and these calls by their sizes."""

    __slots__ = ("calls", "changes", "references")

    def __init__(self, callables: Three) -> None:
        self.references = [None if x is None else weakref.ref(x) for x in callables]
        self.changes = 0
        self.calls: dict[Any, _Call] = {}

    def are(self, callables: Three) -> bool:
        score_mod, mask_mod, block_mask = self.references
        are_same = (score_mod and score_mod()) is callables[0]
        are_same = are_same and (mask_mod and mask_mod()) is callables[1]
        return are_same and (block_mask and block_mask()) is callables[2]


_known: dict[tuple[int, int, int], _Callables] = {}
# The last call that was not known had this function and these sizes.
_before: tuple[weakref.ref[Any], Any] | None = None


def known_variant(query: Any, key: Any, value: Any, enable_gqa: bool, callables: Three) -> Any:
    """The variant of a call, or None where no such call is known."""
    known = _known.get((id(callables[0]), id(callables[1]), id(callables[2])))
    if known is None or not (type(query) is type(key) is type(value) is torch.Tensor):
        return None
    call = known.calls.get((query.shape, key.shape, value.shape, enable_gqa))
    if call is None or not known.are(callables):
        return None
    return call.variant(callables[2], query, key)


def remember(
    query: Any, key: Any, value: Any, enable_gqa: bool, callables: Three, tables: Tables | None
) -> None:
    """Enters a call that was checked, and whose variant was bound, if it follows one like it:
    callables that are made for one call do not come again, nor do lengths that grow."""
    global _before
    score_mod, mask_mod, block_mask = callables
    function = mask_mod if score_mod is None else score_mod
    # Other callables may hold anything, and some cannot be referred to weakly.
    if type(score_mod) not in _KINDS or type(mask_mod) not in _KINDS or function is None:
        return
    sizes = (query.shape, key.shape, value.shape, enable_gqa)
    if _before is None or _before[0]() is not function or _before[1] != sizes:
        _before = weakref.ref(function), sizes
        return
    known = _known.get((id(score_mod), id(mask_mod), id(block_mask)))
    if known is None or not known.are(callables):
        if len(_known) >= MOST_CALLABLES:
            _known.clear()
        known = _known[id(score_mod), id(mask_mod), id(block_mask)] = _Callables(callables)
    if known.changes > MOST_CHANGES:
        return
    if len(known.calls) >= MOST_SIZES:
        known.calls.clear()
    if sizes in known.calls:
        known.changes += 1
    reads = reads_of(score_mod, mask_mod)
    plan = kept_plan(reads, None if block_mask is None else block_size_of(block_mask))
    places = places_of(score_mod, mask_mod)
    if plan is None or plan.last is None or places is None or known.changes > MOST_CHANGES:
        known.changes = MOST_CHANGES + 1
        known.calls.clear()
        return
    known.calls[sizes] = _Call(places, reads.tensors, tables, plan.last)
