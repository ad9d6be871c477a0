"""Sizes and durations as values of flags."""

from __future__ import annotations

import argparse
import dataclasses
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


def bench_shape(text: str) -> tuple[int, int, int, int]:
    """argparse type: "2x4096x32x128"."""
    numbers = [_size(part) for part in re.split("[x,]", text)]
    if len(numbers) != 4 or not all(numbers):
        raise argparse.ArgumentTypeError(
            f"must be BATCHxLENGTHxHEADSxHEAD_DIM such as 2x4096x32x128, got {text!r}"
        )
    return (numbers[0], numbers[1], numbers[2], numbers[3])


@dataclasses.dataclass(frozen=True)
class AttentionShape:
    """The sizes of one call of attention."""

    batch: int
    length: int
    kv_length: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int


@dataclasses.dataclass(frozen=True)
class Mask:
    """A mask that calls of attention share."""

    causal: bool
    window: int | None = None  # keys before the diagonal one that a query sees


def attention_shape(text: str) -> AttentionShape:
    """argparse type: "2x4096x32x128", "1x512/65536x32/8x192/128"."""
    parts = [[_size(size) for size in part.split("/")] for part in re.split("[x,]", text)]
    pairs = [(part[0], part[-1]) for part in parts]
    sound = len(parts) == 4 and len(parts[0]) == 1 and all(len(part) <= 2 for part in parts)
    if not sound or not all(size for pair in pairs for size in pair):
        raise argparse.ArgumentTypeError(
            "must be BATCHxLENGTHxHEADSxHEAD_DIM such as 2x4096x32x128, or with the sizes of k and "
            f"v such as 1x512/65536x32/8x192/128, got {text!r}"
        )
    (batch, _), length, heads, head_dim = pairs
    return AttentionShape(batch, *length, *heads, *head_dim)


def masks(text: str) -> list[Mask]:
    """argparse type: "none,causal,window=1023", each once."""
    found = []
    for part in text.split(","):
        window = re.fullmatch(r"window=(\d{1,9})", part)
        if not window and part not in ("none", "causal"):
            raise argparse.ArgumentTypeError(
                f"must be none, causal or window=LEFT, separated by commas, got {text!r}"
            )
        found.append(Mask(True, int(window[1])) if window else Mask(part == "causal"))
    return list(dict.fromkeys(found))


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
