"""The results of merge_states, without their values."""

from __future__ import annotations

from typing import Any


def out(outs: Any, lses: Any, **options: Any) -> Any:
    """One of outs."""
    return outs.new_empty(outs.shape[1:])


def lse(outs: Any, lses: Any, **options: Any) -> Any:
    """One of lses."""
    return lses.new_empty(lses.shape[1:])
