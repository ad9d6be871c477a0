"""Two kernels side by side: resources, source, PTX, instruction counts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from .. import control
from .output import print_table
from .sass import count_opcodes
from .terminal import Painted

# What is compared, and how a person calls it.
_RESOURCES = {
    "what": "kernel",
    "path": "path",
    "threads": "threads",
    "registers": "registers",
    "dynamic_shared_bytes": "shared bytes",
    "shared_bytes": "static shared bytes",
    "spill_bytes": "spilled bytes",
    "local_bytes": "local bytes",
    "cubin_bytes": "cubin bytes",
    "key": "key",
}


def one_kernel(spec: Mapping[str, Any], arch: str, tile: str = "") -> dict[str, Any]:
    """The kernel of the one row of `spec` whose tile is, or begins with, the text. Compiles that
    row alone. Raises ValueError, with the rows there are."""
    report = control.prewarm(spec, arch, check=True)
    rows = {kernel["what"].split(", tile ")[-1]: kernel["spec"] for kernel in report["kernels"]}
    exact = [tile] if tile in rows else []
    matching = exact or [name for name in rows if name.startswith(tile)]
    if len(matching) != 1:
        given = f"{tile!r} names {len(matching)} of them" if tile else "the spec names no tile"
        raise ValueError(
            f"a diff takes one row of the config table on each side, and {given}; "
            f"the rows: {', '.join(matching or rows)}"
        )
    (kernel,) = control.inspect(rows[matching[0]], arch)
    return kernel


def differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The resources that differ, each of both kernels."""
    pairs = {name: [one.get(name), two.get(name)] for name in _RESOURCES}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def print_resources(one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    """A table of both, a mark where they differ."""
    differing = differences(one, two)
    rows = []
    for name, heading in _RESOURCES.items():
        pair = [str(kernel.get(name))[:48] for kernel in (one, two)]
        if name in differing:
            rows.append([Painted("*", "caution"), heading, *(Painted(p, "caution") for p in pair)])
        else:
            rows.append(["", heading, *pair])
    print_table(["", "", "A", "B"], rows)
    print(f"\n{len(differing)} of {len(_RESOURCES)} differ (*)")


def unified_diff(one: Mapping[str, Any], two: Mapping[str, Any], field: str) -> str:
    """Of "source" or "ptx", as `diff -u` has it; empty when they are equal."""
    lines = difflib.unified_diff(
        one[field].splitlines(), two[field].splitlines(), one["what"], two["what"], lineterm=""
    )
    return "\n".join(lines)


def opcode_counts(one: str, two: str) -> dict[str, list[int]]:
    """Of two SASS texts, the largest difference first: {"HMMA": [512, 256], ...}."""
    counts = [count_opcodes(one), count_opcodes(two)]
    names = dict.fromkeys([*counts[0], *counts[1]])
    pairs = {name: [count.get(name, 0) for count in counts] for name in names}
    return dict(sorted(pairs.items(), key=lambda item: -abs(item[1][1] - item[1][0])))


def print_opcodes(counts: Mapping[str, list[int]]) -> None:
    """A table of both counts and the difference."""
    rows = [
        ["" if a == b else Painted("*", "caution"), name, a, b, f"{b - a:+}" if a != b else ""]
        for name, (a, b) in counts.items()
    ]
    total = [sum(pair[side] for pair in counts.values()) for side in (0, 1)]
    rows.append(["", "all", *total, f"{total[1] - total[0]:+}"])
    print_table(["", "opcode", "A", "B", "B - A"], rows)
