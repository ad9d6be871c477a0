"""`kiln tune gemm`: measures the tiles of matrix products and writes the table of the fastest."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from typing import Any

from .. import __version__, control, models
from .gemm_timing import Kind, Measured, Shape, measure, tile_text
from .gpu_arrays import find_gpu
from .output import (
    OK,
    Unavailable,
    add_command,
    add_json_flag,
    print_json,
    print_table,
)
from .properties import add_product
from .sizes import seconds, shape, sizes
from .terminal import Progress

_SCHEMA = 1
_ROWS = [1, 16, 64, 512, 4096]


def add_parser(commands: Any) -> None:
    """Adds the command and its one operation."""
    parser = add_command(
        commands,
        "tune",
        "measure the tiles of an operation on this GPU and write a table for KILN_TUNING",
        """Measures which tiles are the fastest on this GPU, where the cost model is not enough,
        and writes a table that calls ask first (KILN_TUNING, kiln.set_tuning). There is one
        operation, gemm.""",
        [("kiln tune gemm --model llama-3.1-8b --out tiles.json", "the projections of a model")],
    )
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
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
    gemm.add_argument(
        "--out", required=True, metavar="FILE", help="the file to which the table is written"
    )
    gemm.add_argument(
        "--seconds", type=seconds, default=0.3, help="how long each shape is measured; default: 0.3"
    )
    add_json_flag(gemm)
    gemm.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures, writes the table after every shape, and reports."""
    shapes = _shapes(options)
    kind = Kind.of(options.dtype, options.out_dtype, options.layout, options.precision)
    _check_folder(options.out)
    gpu = find_gpu(kind.dtype, kind.out_dtype)
    table = _head(control.diagnose()["devices"][gpu.ordinal])
    results: list[tuple[Shape, Measured]] = []
    print(f"{len(shapes)} shapes; the first takes longer: its tiles are compiled", file=sys.stderr)
    progress = Progress(len(shapes))
    previous = control.set_tuning(None)  # the model's own choice is needed
    try:
        for product in shapes:
            measured = measure(kind, product, gpu, options.seconds, table["arch"])
            results.append((product, measured))
            table["entries"].append(_entry(kind, product, measured))
            table["model_over_best"] = summary(results)
            _write(options.out, table)
            _show(progress, len(results), product, measured)
    except gpu.out_of_memory as error:
        raise Unavailable(
            f"tune: {product} does not fit in the GPU's memory ({error}): leave it out"
        ) from None
    finally:
        progress.close()
        control.set_tuning(previous)
    if options.json:
        print_json(table)
    else:
        _print_report(results, table["model_over_best"], options.out)
    return OK


def _show(progress: Progress, done: int, shape: Shape, measured: Measured) -> None:
    progress.step(
        done,
        f"{shape}: {tile_text(measured.best)} {measured.best_us:.1f} us, best of {measured.tiles}; "
        f"the model's {measured.ratio * 100 - 100:.1f} % longer",
    )


def summary(results: list[tuple[Shape, Measured]]) -> dict[str, Any]:
    """The model's times over the best ones, which is what tuning can gain."""
    logs = [math.log(measured.ratio) for _, measured in results]
    shape, worst = max(results, key=lambda result: result[1].ratio)
    return {
        "geometric_mean": math.exp(sum(logs) / len(logs)),
        "worst": worst.ratio,
        "worst_shape": [shape.m, shape.n, shape.k],
    }


def _head(device: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "kiln": __version__,
        "device": device["name"],
        "arch": "sm_" + device["compute_capability"].replace(".", ""),
        "sm_count": device["sm_count"],
        "entries": [],
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


def _check_folder(path: str) -> None:
    # This is checked before minutes of measuring and not after them.
    if os.path.isdir(path):
        raise ValueError(f"--out {path} is a folder; give the path of a file")
    with tempfile.TemporaryFile(dir=os.path.dirname(path) or "."):
        pass


def _write(path: str, table: dict[str, Any]) -> None:
    # A reader finds a complete table at any time, also after Ctrl-C.
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
            file.write("\n")
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
