"""The plot of a variant: which tiles attention's kernel skips, masks and computes whole.

The kinds of tiles come from the compiled part, where the kernel's own functions decide; here they
are counted and drawn.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any

from . import _core
from .devices import device

# What a tile is drawn as: its name in the result, its color, and the words of the legend.
_SKIP, _PARTIAL, _FULL, _EMPTY, _WHOLE, _WRONG = range(6)
_KINDS = (
    ("skip", (238, 238, 238), "skipped"),
    ("partial", (244, 178, 102), "masked"),
    ("full", (76, 132, 196), "computed whole"),
    ("empty", (204, 62, 62), "visited, but nothing is visible"),
    ("whole", (148, 196, 112), "masked, but all is visible"),
    ("wrong", (160, 32, 160), "wrong"),
)
_OF_KERNEL = {0: _SKIP, 1: _FULL, 2: _PARTIAL}  # kiln::Tile
_MOST, _MOST_OF_TILE = 1 << 16, 1 << 12
_PIXELS = 480  # of the longer side of a picture without matplotlib, about


def plot(
    variant: Any,
    seq_q: int,
    seq_kv: int,
    path: str | os.PathLike[str] | None = "mask.png",
    *,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    arch: str | None = None,
    tile: tuple[int, int] | None = None,
    head_dim: int = 128,
    heads: int | None = None,
    heads_kv: int | None = None,
    batch: int | None = None,
    head: int = 0,
    sequence: int = 0,
) -> dict[str, Any]:
    """Variant.plot and BoundVariant.plot; their docstring says what it does."""
    variant, extents = _on_host(variant)
    heads_kv = heads_kv or extents.get("h_kv", 0) or heads or extents.get("h", 1)
    heads = heads or max(extents.get("h", 1), heads_kv)
    batch = batch or extents.get("b", 1)
    for name, size, most in (("seq_q", seq_q, _MOST), ("seq_kv", seq_kv, _MOST),
                             *(("tile", size, _MOST_OF_TILE) for size in tile or ())):  # fmt: skip
        if not 1 <= size <= most:
            raise ValueError(f"plot: {name} must be from 1 to {most}, got {size}")
    for name, index, end in (("head", head, heads), ("sequence", sequence, batch)):
        if not 0 <= index < end:
            raise ValueError(
                f"plot: {name} must be less than the {end} that the call has, got {index}; "
                "heads=, heads_kv= and batch= say how many"
            )
    left, right = (-1, -1) if window is None else window
    sizes = dict(
        causal=bool(causal), left=left, right=right, batch=batch, heads=heads, heads_kv=heads_kv,
        seq_q=seq_q, seq_kv=seq_kv, head_dim=head_dim, head=head, sequence=sequence,
        block_q=tile[0] if tile else 0, block_kv=tile[1] if tile else 0,
    )  # fmt: skip
    with device(_emulator(arch)):
        found = _core.map_tiles(variant, sizes)
    result = _counted(found, seq_kv)
    if path is not None:
        _draw(result, variant.name, seq_q, seq_kv, path)
    return result


def _emulator(arch: str | None) -> str:
    if arch is not None:
        return f"emulator:{arch}"
    current = _core.device()
    return current if current.startswith("emulator") else "emulator"


def _on_host(variant: Any) -> tuple[Any, dict[str, int]]:
    """The variant with tensors in host memory, and the extent of each of their indices."""
    if not hasattr(variant, "_parts"):
        return variant, {}
    text, _, tensors = variant._parts
    extents: dict[str, int] = {}
    for declared, tensor in zip(json.loads(text)["tensors"], tensors):
        indices = declared[1].split("[", 1)[1].rstrip("]").split(",")
        for index, extent in zip(indices, tensor.shape):
            extents[index.strip()] = max(extents.get(index.strip(), 1), int(extent))
    definition, values = variant.__getstate__()
    moved = {name: _host_value(value) for name, value in values.items()}
    return (definition(**moved) if moved else variant), extents


def _host_value(value: Any) -> Any:
    if hasattr(value, "cpu"):  # PyTorch
        return value.cpu()
    return value.get() if hasattr(value, "get") else value  # CuPy


def _counted(found: dict[str, Any], seq_kv: int) -> dict[str, Any]:
    block_kv, width = found["tile"][1], found["key_tiles"]
    kinds = []
    for number, (first, last) in enumerate(found["rows"]):
        here = slice(number * width, (number + 1) * width)
        pairs = (last - first + 1) * block_kv
        kinds.append([_kind(*pair, pairs) for pair in zip(found["kinds"][here],
                                                          found["shown"][here])])  # fmt: skip
    counts = [sum(row.count(kind) for row in kinds) for kind in range(len(_KINDS))]
    tiles = sum(counts)
    result: dict[str, Any] = {name: count for (name, _, _), count in zip(_KINDS, counts)}
    result["partial"] += result["empty"] + result["whole"]
    result.update(
        tiles=tiles,
        share=(tiles - counts[_SKIP]) / tiles,
        visible=sum(found["shown"]) / _all_pairs(found["rows"], seq_kv),
        kinds=[[_KINDS[kind][0] for kind in row] for row in kinds],
        rows=found["rows"],
        tile=found["tile"],
        path=found["path"],
        what=found["what"],
    )
    return result


def _all_pairs(rows: list[tuple[int, int]], seq_kv: int) -> int:
    return sum(last - first + 1 for first, last in rows) * seq_kv


def _kind(kernel: int, shown: int, pairs: int) -> int:
    kind = _OF_KERNEL[kernel]
    if (kind == _SKIP and shown > 0) or (kind == _FULL and shown < pairs):
        return _WRONG
    if kind == _PARTIAL and shown in (0, pairs):
        return _EMPTY if shown == 0 else _WHOLE
    return kind


def _words(result: dict[str, Any], name: str) -> list[str]:
    block_q, block_kv = result["tile"]
    return [
        f"{name}: tiles of {block_q} queries and {block_kv} keys ({result['path']})",
        f"{result['skip']} skipped, {result['partial']} masked, {result['full']} whole: "
        f"{result['share']:.1%} of the dense work, {result['visible']:.1%} of the pairs visible",
    ]


def _draw(result: dict[str, Any], name: str, seq_q: int, seq_kv: int, path: Any) -> None:
    numbers = {kind: number for number, (kind, _, _) in enumerate(_KINDS)}
    grid = [[numbers[kind] for kind in row] for row in result["kinds"]]
    try:
        import matplotlib
    except ImportError:
        with open(path, "wb") as file:
            file.write(_png(result, grid, "\n".join(_words(result, name))))
        return
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    del matplotlib
    colors = [tuple(part / 255 for part in color) for _, color, _ in _KINDS]
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot()
    first_rows = [first for first, _ in result["rows"]] + [seq_q]
    first_keys = [*range(0, seq_kv, result["tile"][1]), seq_kv]
    axes.pcolormesh(first_keys, first_rows, grid, cmap=ListedColormap(colors), vmin=0,
                    vmax=len(_KINDS) - 1, edgecolors="white", linewidth=0.3)  # fmt: skip
    axes.set(xlabel="key", ylabel="query", xlim=(0, seq_kv), ylim=(seq_q, 0))
    axes.set_title("\n".join(_words(result, name)), fontsize=8)
    present = {kind for row in grid for kind in row}
    patches = [Patch(color=colors[kind], label=_KINDS[kind][2]) for kind in sorted(present)]
    figure.legend(handles=patches, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, format="png", dpi=100, metadata={"Software": None})


def _png(result: dict[str, Any], grid: list[list[int]], description: str) -> bytes:
    """A picture of rectangles, each with a light edge, with PNG's palette."""
    heights = [last - first + 1 for first, last in result["rows"]]
    widths = [result["tile"][1]] * len(grid[0])
    scale = _PIXELS / max(sum(heights), sum(widths))
    heights, widths = ([max(2, round(size * scale)) for size in sizes]
                       for sizes in (heights, widths))  # fmt: skip
    edge = len(_KINDS)
    lines = bytearray()
    for row, height in zip(grid, heights):
        line = b"".join(bytes([kind] * (width - 1) + [edge]) for kind, width in zip(row, widths))
        lines += (b"\0" + line) * (height - 1) + b"\0" + bytes([edge]) * len(line)
    size = sum(widths), sum(heights)
    header = struct.pack(">IIBBBBB", *size, 8, 3, 0, 0, 0)
    palette = b"".join(bytes(color) for _, color, _ in _KINDS) + b"\xff" * 3
    chunks = (
        (b"IHDR", header),
        (b"PLTE", palette),
        (b"tEXt", b"Description\0" + description.encode("latin-1", "replace")),
        (b"IDAT", zlib.compress(bytes(lines), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
