"""Calls that come again have their variants from _core.known_variant: where the callables hold the
same objects and the tensors have the same sizes, nothing of a call is checked or looked up a second
time. Here it is decided which calls are remembered for that."""

from __future__ import annotations

import types
import weakref
from typing import Any

from .. import _core
from .blocks import Tables, are_kept, block_size_of
from .places import places_of
from .plan import kept_plan
from .reads import reads_of

_KINDS = (types.FunctionType, types.NoneType)

Three = tuple[Any, Any, Any]  # score_mod, mask_mod and block_mask

# The last call that was not known had this function and these sizes.
_before: tuple[weakref.ref[Any], Any] | None = None


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
    if not _core.may_be_known(callables):
        return
    if tables is not None and not are_kept(tables, block_mask):
        return
    reads = reads_of(score_mod, mask_mod)
    plan = kept_plan(reads, None if block_mask is None else block_size_of(block_mask))
    functions = places_of(score_mod, mask_mod)
    if plan is None or plan.last is None or functions is None:
        _core.give_up_knowing(callables)
        return
    bound = [reads.tensors[place] for place in plan.places]
    _core.remember_call(
        query, key, value, enable_gqa, callables, functions, reads.tensors, bound, plan.last
    )
