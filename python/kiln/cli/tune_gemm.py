"""`kiln tune gemm`: measures the tiles of matrix products and writes the table of the fastest."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import control, models
from ..files import check_target
from .gemm_timing import Kind, Measured, Shape, measure, tile_text
from .gpu_arrays import find_gpu
from .output import OK, add_command, print_json, print_table
from .properties import add_product
from .sizes import shape, sizes
from .tune_table import Table, add_table_flags, measure_each, over_best

_ROWS = [1, 16, 64, 512, 4096]


def add_parser(operations: Any) -> None:
    """Adds the operation to `kiln tune`."""
    gemm = add_command(
        operations,
        "gemm",
        "time every tile of the config table on matrix products, beside the model's choice",
        """Times every tile of the config table on the shapes given and writes a table of the
        fastest. Each shape is M x N x K of out[M, N] = a[M, K] b[K, N]. An M between measured ones
        gets the tile of the nearest one that rounds up to the same power of two (such as 33 to 64).
        For shapes that the table lacks, the cost model decides. Needs a GPU that runs no other
        work meanwhile, and PyTorch or CuPy for its memory. See docs/tuning.md.""",
        [
            (
                "kiln tune gemm --model llama-3.1-8b --out tiles.json",
                "five M each",
            ),
            ("kiln tune gemm --shape 64x28672x4096 --shape 512x6144x4096 --out tiles.json", ""),
            ("KILN_TUNING=tiles.json python serve.py", "use it (or kiln.set_tuning)"),
        ],
    )
    what = gemm.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--shape",
        action="append",
        type=shape,
        metavar="MxNxK",
        help="the shape of a product; repeatable",
    )
    what.add_argument("--model", help="a known model, or the path of a config.json")
    gemm.add_argument(
        "--m", type=sizes, metavar="M,...", help="with --model; default: 1,16,64,512,4096"
    )
    add_product(gemm)
    add_table_flags(gemm)
    gemm.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures, writes the table after every shape, and reports."""
    shapes = _shapes(options)
    kind = Kind.of(options.dtype, options.out_dtype, options.layout, options.precision)
    check_target("--out", options.out)
    gpu = find_gpu(kind.dtype, kind.out_dtype)
    table = Table(options.out, "gemm", control.diagnose()["devices"][gpu.ordinal])
    print(f"{len(shapes)} shapes; the first takes longer: its tiles are compiled", file=sys.stderr)

    def done(results: list[tuple[Shape, Measured]]) -> str:
        product, measured = results[-1]
        table.add(_entry(kind, product, measured), model_over_best=summary(results))
        return (
            f"{product}: {tile_text(measured.best)} {measured.best_us:.1f} us, "
            f"best of {measured.tiles}; the model's {measured.ratio * 100 - 100:.1f} % longer"
        )

    results = measure_each(
        "gemm",
        shapes,
        lambda product: measure(kind, product, gpu, options.seconds, table.arch),
        gpu,
        done,
    )
    if options.json:
        print_json(table.content)
    else:
        _print_report(results, table.content["model_over_best"], options.out)
    return OK


def summary(results: list[tuple[Shape, Measured]]) -> dict[str, Any]:
    """The model's times over the best ones."""
    shape, _ = max(results, key=lambda result: result[1].ratio)
    return {
        **over_best([measured.ratio for _, measured in results]),
        "worst_shape": [shape.m, shape.n, shape.k],
    }


def _entry(kind: Kind, shape: Shape, measured: Measured) -> dict[str, Any]:
    return {
        "dtype": kind.dtype,
        "out_dtype": kind.out_dtype,
        "layout": measured.layout,
        "precision": kind.precision,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "batch": 1,
        "config": measured.best,
        "us": round(measured.best_us, 3),
        "model": {"config": measured.model, "us": round(measured.model_us, 3)},
    }


def _print_report(results: list[tuple[Shape, Measured]], over: dict[str, Any], path: str) -> None:
    print_table(
        ["M x N x K", "best tile", "us", "the model's", "us", "loss"],
        [
            [
                shape,
                tile_text(measured.best),
                f"{measured.best_us:.1f}",
                tile_text(measured.model),
                f"{measured.model_us:.1f}",
                f"{measured.ratio * 100 - 100:.1f} %",
            ]
            for shape, measured in results
        ],
    )
    print(
        f"\nthe model over the best: {over['geometric_mean']:.3f} (geometric mean), "
        f"{over['worst']:.3f} at worst ({Shape(*over['worst_shape'])})\n"
        f"{len(results)} shapes in {path}; use it with KILN_TUNING={path} or kiln.set_tuning"
    )


def _shapes(options: argparse.Namespace) -> list[Shape]:
    if options.shape:
        if options.m:
            raise ValueError("--m belongs to --model; a --shape has its own M")
        return list(dict.fromkeys(options.shape))
    _, model = models.load_model(options.model)
    projections = dict.fromkeys((n, k) for n, k in model["gemm"].values())
    return [Shape(m, n, k) for n, k in projections for m in options.m or _ROWS]
