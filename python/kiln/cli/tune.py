"""`kiln tune`: measures the tiles of an operation and writes the table of the fastest."""

from __future__ import annotations

from typing import Any

from . import tune_attention, tune_gemm
from .output import add_command


def add_parser(commands: Any) -> None:
    """Adds the command and its operations."""
    parser = add_command(
        commands,
        "tune",
        "measure the tiles of an operation on this GPU and write a table for KILN_TUNING",
        """Measures which tiles are the fastest on this GPU, where the built-in choice is not
        enough, and writes a table that calls ask first (KILN_TUNING, kiln.set_tuning). One file may
        hold entries of both operations, gemm and attention: measuring one keeps those of the
        other.""",
        [
            ("kiln tune gemm --model llama-3.1-8b --out tiles.json", "the projections of a model"),
            ("kiln tune attention --out tiles.json", "a grid of head dims and lengths"),
        ],
    )
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    tune_gemm.add_parser(operations)
    tune_attention.add_parser(operations)
