"""Sizes and durations as values of flags."""

from __future__ import annotations

import argparse
import re

from .gemm_timing import Shape


def _size(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) > 0 else 0


def shape(text: str) -> Shape:
    """argparse type: "64x4096x14336"."""
    numbers = [_size(part) for part in re.split("[x,]", text)]
    if len(numbers) != 3 or not all(numbers):
        raise argparse.ArgumentTypeError(f"must be MxNxK such as 64x4096x14336, got {text!r}")
    return Shape(*numbers)


def sizes(text: str) -> list[int]:
    """argparse type: "1,16,64", each once."""
    numbers = [_size(part) for part in text.split(",")]
    if not all(numbers):
        raise argparse.ArgumentTypeError(f"must be whole numbers like 1,16,64, got {text!r}")
    return list(dict.fromkeys(numbers))


def seconds(text: str) -> float:
    """argparse type: "0.3"."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"must be seconds from 0 to 3600, got {text!r}")
    return number
