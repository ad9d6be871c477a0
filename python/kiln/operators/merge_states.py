"""The results of merge_states, without their values."""

from __future__ import annotations

from typing import Any

from ._values import ranks

_OUTS = "4 dimensions [parts, tokens, heads, head_dim]"
_LSES = "3 dimensions [parts, heads, tokens] or [parts, tokens, heads]"


def out(outs: Any, lses: Any, **options: Any) -> Any:
    """One of outs."""
    ranks("merge_states", (4,), _OUTS, outs=outs)
    return outs.new_empty(outs.shape[1:])


def lse(outs: Any, lses: Any, **options: Any) -> Any:
    """One of lses."""
    ranks("merge_states", (3,), _LSES, lses=lses)
    return lses.new_empty(lses.shape[1:])
