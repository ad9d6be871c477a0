"""What the commands share: exit codes, help, JSON on stdout, tables, dtypes."""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _core
from .terminal import Painted, paint

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)


class Unavailable(Exception):
    """What the command needs is not on this machine: exit code 4. The message names the cure."""


_F8_DTYPES = {
    "f8e4m3": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "e5m2": "float8_e5m2",
}
_PLAIN_DTYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "fp16": "float16",
    "half": "float16",
    "f32": "float32",
    "fp32": "float32",
    "tf32": "float32",
}
DTYPES = _PLAIN_DTYPES | _F8_DTYPES  # short names that every flag takes, to the names of specs


def dtype_name(text: str) -> str:
    """argparse type: "bf16" or "bfloat16" to "bfloat16"."""
    return _chosen(text, _PLAIN_DTYPES)


def operand_dtype_name(text: str) -> str:
    """argparse type: what dtype_name takes, and the 8-bit floats."""
    return _chosen(text, DTYPES)


def _chosen(text: str, short_names: dict[str, str]) -> str:
    name = short_names.get(text, text)
    allowed = list(dict.fromkeys(short_names.values()))
    if name not in allowed:
        names = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise argparse.ArgumentTypeError(f"must be {names}, got {text!r}")
    return name


def add_command(
    commands: Any, name: str, summary: str, description: str, examples: Sequence[tuple[str, str]]
) -> argparse.ArgumentParser:
    """A parser whose help teaches: what the command is for, its flags, and commands to try."""
    width = max(len(command) for command, _ in examples)
    lines = [f"  {command:{width}}  {what}".rstrip() for command, what in examples]
    return commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(" ".join(description.split()), 98),
        epilog="\n".join(["examples:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """--json, the same for every command."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON, and nothing else, to stdout"
    )


def print_json(value: Any) -> None:
    """Prints one JSON document."""
    json.dump(_as_json(value), sys.stdout, indent=2, allow_nan=False)
    print()


def _as_json(value: Any) -> Any:
    """JSON has neither infinities nor NaN: they become "inf", "-inf" and "nan"."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints left-aligned columns, each as wide as its widest cell."""
    lines = [list(headings), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        padded = [_painted(cell) + " " * (width - len(cell)) for cell, width in zip(line, widths)]
        print("  ".join(padded).rstrip())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _painted(cell: str) -> str:
    return paint(cell, cell.colour) if isinstance(cell, Painted) else cell


def byte_text(count: float) -> str:
    """1536 to "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def nvrtc_problem() -> str:
    """Why NVRTC cannot be loaded; empty when it is."""
    facts = _core.nvrtc_info(load=True)
    return "" if facts["loaded"] else facts["problem"]
