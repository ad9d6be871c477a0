"""Checks of flags and numbers in Python that PyTorch's compiler traces: symbolic numbers pass.

The C entries check the same, with the same messages, wherever nothing is traced.
"""

from __future__ import annotations

from typing import Any

import torch

_NUMPY_FLAGS = ("bool", "bool_")  # the names of NumPy's type of a single bool


def is_flag(value: Any) -> bool:
    """Returns whether a value is True or False."""
    if isinstance(value, (bool, torch.SymBool)):
        return True
    return type(value).__name__ in _NUMPY_FLAGS


def is_integer(value: Any) -> bool:
    """Returns whether a value is an integer, which a flag is not."""
    if is_flag(value) or isinstance(value, (float, torch.SymFloat)):
        return False
    if isinstance(value, (int, torch.SymInt)):
        return True
    return hasattr(value, "__index__") and not getattr(value, "shape", ())


def flag(op: str, name: str, value: Any) -> Any:
    """Returns a flag, and refuses other values."""
    if not is_flag(value):
        raise TypeError(f"{op}: {name} must be True or False, got {value!r}")
    return value


def number(op: str, name: str, value: Any) -> Any:
    """Returns a number, and refuses other values."""
    if isinstance(value, (bool, torch.SymBool)):
        raise TypeError(f"{op}: {name} must be a number, got the bool {value}")
    kinds = (float, int, torch.SymFloat, torch.SymInt)
    if not isinstance(value, kinds) and not hasattr(value, "__float__"):
        raise TypeError(f"{op}: {name} must be a number, got {value!r}")
    return value


def integer(op: str, name: str, value: Any) -> Any:
    """Returns an integer, and refuses other values."""
    if not is_integer(value):
        raise TypeError(f"{op}: {name} must be an integer, got {value!r}")
    return value
