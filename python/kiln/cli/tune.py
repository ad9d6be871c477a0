"""`kiln tune`: measures the tiles of an operation and writes the table of the fastest."""

from __future__ import annotations

from typing import Any

from . import tune_gemm
from .output import add_command


def add_parser(commands: Any) -> None:
    """Adds the command and its operations."""
    parser = add_command(
        commands,
        "tune",
        "measure the tiles of an operation on this GPU and write a table for KILN_TUNING",
        """Measures which tiles are the fastest on this GPU, where the cost model is not enough,
        and writes a table that calls ask first (KILN_TUNING, kiln.set_tuning). There is one
        operation, gemm.""",
        [
            ("kiln tune gemm --model llama-3.1-8b --out tiles.json", "the projections of a model"),
        ],
    )
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    tune_gemm.add_parser(operations)
