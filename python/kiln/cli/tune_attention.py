"""`kiln tune attention`: measures the rows of the sm_90a table and writes the fastest to a file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import control
from ..files import check_target
from .attention_timing import Measured, entry_of, measure
from .bench_cases import AttentionCase
from .gpu_arrays import find_gpu
from .output import OK, Unavailable, add_command, dtype_name, print_json, print_table
from .sizes import AttentionShape, Mask, attention_shape, masks
from .tune_table import Table, add_table_flags, measure_each, over_best

_HEAD_DIMS = (64, 128, 256)
_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
_TOKENS = 16384  # of all sequences together
_WIDTH = 2048  # heads * head_dim


def add_parser(operations: Any) -> None:
    """Adds the operation to `kiln tune`."""
    attention = add_command(
        operations,
        "attention",
        "time every row of the sm_90a table on attention, beside the built-in choice",
        """Times every row of the sm_90a config table that can serve a problem, rows whose thread
        blocks share keys with several counts of them, and writes a table of the fastest. Without
        --shape, the problems are head dims 64, 128 and 256 at lengths from 512 to 16384, with 16384
        tokens in all and heads * head dim = 2048. Lengths between measured ones get the tile of the
        nearest that round up to the same powers of two. For problems that the table lacks, the
        built-in choice stays. Needs a GPU of compute capability 9.0 that runs no other work
        meanwhile, and PyTorch or CuPy for its memory. See docs/tuning.md.""",
        [
            ("kiln tune attention --out tiles.json", "the grid, full and causal"),
            ("kiln tune attention --shape 2x8192x32/8x128 --mask causal --out tiles.json", "GQA"),
            (
                "kiln tune attention --shape 1x512/65536x32/8x128 --mask causal --out tiles.json",
                "a chunk of a long prompt",
            ),
            ("KILN_TUNING=tiles.json python serve.py", "use it (or kiln.set_tuning)"),
        ],
    )
    attention.add_argument(
        "--shape",
        action="append",
        type=attention_shape,
        metavar="BxLxHxD",
        help="batch, length, heads and head dim of q; L, H and D may each be two sizes, Q/KV, "
        "where those of k and v differ (D: of v); repeatable",
    )
    attention.add_argument(
        "--mask",
        type=masks,
        default=masks("none,causal"),
        metavar="MASK,...",
        help="none, causal or window=LEFT, a causal window of so many keys before the diagonal "
        "one; default: none,causal",
    )
    attention.add_argument("--dtype", type=dtype_name, default="bfloat16", help="default: bfloat16")
    add_table_flags(attention)
    attention.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures, writes the table after every problem, and reports."""
    cases = cases_of(options.shape or default_shapes(), options.mask, options.dtype)
    check_target("--out", options.out)
    gpu = find_gpu(options.dtype)
    device = control.diagnose()["devices"][gpu.ordinal]
    name, capability = device["name"], device["compute_capability"]
    if capability != "9.0":
        raise Unavailable(
            "tune attention: the rows of the sm_90a table need a GPU of compute capability 9.0, "
            f"and {name} has {capability}; use the built-in choice there"
        )
    table = Table(options.out, "flash_attention", device)
    print(f"{len(cases)} problems; their tiles are compiled first", file=sys.stderr)
    head = {name: table.content[name] for name in ("schema", "arch", "sm_count")}

    def done(results: list[tuple[AttentionCase, Measured]]) -> str:
        case, measured = results[-1]
        table.add(_entry(case, measured), builtin_over_best=summary(results))
        return (
            f"{case}: {measured.best} {measured.times[measured.best]:.1f} us, best of "
            f"{len(measured.times)}; the built-in choice {measured.ratio * 100 - 100:.1f} % longer"
        )

    results = measure_each(
        "attention", cases, lambda case: measure(case, gpu, options.seconds, head), gpu, done
    )
    if options.json:
        print_json(table.content)
    else:
        _print_report(results, table.content["builtin_over_best"], options.out)
    return OK


def default_shapes() -> list[AttentionShape]:
    """The grid that the built-in table was measured on."""
    return [
        AttentionShape(_TOKENS // length, length, length, _WIDTH // dim, _WIDTH // dim, dim, dim)
        for dim in _HEAD_DIMS
        for length in _LENGTHS
    ]


def cases_of(shapes: list[AttentionShape], masks: list[Mask], dtype: str) -> list[AttentionCase]:
    """Every shape with every mask. Raises ValueError for sizes that attention does not take."""
    if dtype == "float32":
        raise ValueError("tune attention: --dtype must be bfloat16 or float16")
    for shape in shapes:
        if shape.heads % shape.kv_heads:
            raise ValueError(
                f"--shape: the heads of k and v must divide the {shape.heads} heads of q, got "
                f"{shape.kv_heads}"
            )
        for dim in (shape.head_dim, shape.head_dim_v):
            if dim % 8 or dim > 256:
                raise ValueError(
                    f"--shape: a head dim must be a multiple of 8 up to 256, got {dim}"
                )
    return [
        AttentionCase(
            *(shape.batch, shape.length, shape.heads, shape.head_dim),
            *(shape.kv_heads, shape.kv_length),
            dtype=dtype,
            causal=mask.causal,
            window=mask.window,
            head_dim_v=shape.head_dim_v,
        )
        for shape in dict.fromkeys(shapes)
        for mask in masks
    ]


def summary(results: list[tuple[AttentionCase, Measured]]) -> dict[str, Any]:
    """The built-in choices' times over the best ones."""
    case, _ = max(results, key=lambda result: result[1].ratio)
    return {
        **over_best([measured.ratio for _, measured in results]),
        "worst_problem": str(case),
    }


def _entry(case: AttentionCase, measured: Measured) -> dict[str, Any] | None:
    # An entry names a row of the sm_90a table for dense calls: where another kernel is faster, the
    # built-in choice stays, which takes it.
    best = measured.best
    if best.path != "sm_90a":
        return None
    return {
        **entry_of(case, best),
        "us": round(measured.times[best], 3),
        "builtin": {
            "tile": str(measured.builtin),
            "us": round(measured.times[measured.builtin], 3),
        },
        "tiles": {str(tile): round(us, 3) for tile, us in measured.times.items()},
    }


def _print_report(
    results: list[tuple[AttentionCase, Measured]], over: dict[str, Any], path: str
) -> None:
    rows = []
    for case, measured in results:
        for tile, us in sorted(measured.times.items(), key=lambda item: item[1]):
            marks = {"fastest": measured.best, "built-in choice": measured.builtin}
            chosen = ", ".join(mark for mark, marked in marks.items() if marked == tile)
            rows.append([case, tile, f"{us:.1f}", f"{case.flops() / us * 1e-6:.1f}", chosen])
    print_table(["problem", "tile", "us", "TFLOP/s", "chosen"], rows)
    print(
        f"\nthe built-in choice over the best: {over['geometric_mean']:.3f} (geometric mean), "
        f"{over['worst']:.3f} at worst ({over['worst_problem']})\n"
        f"{len(results)} problems in {path}; use it with KILN_TUNING={path} or kiln.set_tuning"
    )
