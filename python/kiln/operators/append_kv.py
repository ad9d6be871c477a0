"""What append_kv makes, without its values."""

from __future__ import annotations

from typing import Any


def query_out(key: Any, value: Any, slot_mapping: Any, *, query: Any, **options: Any) -> Any:
    """Like query, contiguous."""
    return query.new_empty(query.shape)
