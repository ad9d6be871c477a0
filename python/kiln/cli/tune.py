"""`kiln tune gemm`: measures the tiles of matrix products and writes the table of the fastest."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
from typing import Any

from .. import __version__, control, models
from .gemm_timing import Kind, Measured, Shape, measure, tile_text
from .gpu_arrays import NoGpu, find_gpu
from .output import (
    ENVIRONMENT,
    OK,
    add_json_flag,
    dtype_name,
    operand_dtype_name,
    print_json,
    print_table,
)

_SCHEMA = 1
_ROWS = [1, 16, 64, 512, 4096]
_EPILOG = """\
examples:
  kiln tune gemm --model llama-3.1-8b --out tiles.json       the projections, at five M each
  kiln tune gemm --shape 64x28672x4096 --shape 512x6144x4096 --out tiles.json
  KILN_TUNING=tiles.json python serve.py                     use it (or kiln.set_tuning)

Each shape is M x N x K of out[M, N] = a[M, K] b[K, N]. An M between measured ones gets the tile of
the nearest that rounds up to the same power of two (33 to 64, say); what the table lacks, the cost
model decides. Keep other work off the GPU meanwhile. The whole story: docs/tuning.md
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command and its one operation."""
    text = "measure the tiles of an operation on this GPU and write a table for KILN_TUNING"
    parser = commands.add_parser("tune", help=text, description=text)
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    text = "time every tile of the config table on matrix products, beside the model's choice"
    gemm = operations.add_parser(
        "gemm",
        help=text,
        description=text,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = gemm.add_mutually_exclusive_group(required=True)
    what.add_argument("--shape", action="append", type=_shape, metavar="MxNxK", help="repeatable")
    what.add_argument("--model", help="a known model, or the path of a config.json")
    gemm.add_argument(
        "--m", type=_sizes, metavar="M,...", help="with --model; default: 1,16,64,512,4096"
    )
    gemm.add_argument("--dtype", type=operand_dtype_name, default="bfloat16")
    gemm.add_argument(
        "--out-dtype", type=dtype_name, help="default: --dtype, bfloat16 for 8-bit floats"
    )
    gemm.add_argument("--layout", choices=["nn", "nt", "tn", "tt"], default="nt")
    gemm.add_argument(
        "--precision", choices=["full", "fast"], default="full", help="of 8-bit floats"
    )
    gemm.add_argument("--out", required=True, metavar="FILE", help="where the table goes")
    gemm.add_argument(
        "--seconds", type=_seconds, default=0.3, help="of measuring a shape; default: 0.3"
    )
    add_json_flag(gemm)
    gemm.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures, writes the table after every shape, and reports."""
    kind, shapes = _kind(options), _shapes(options)
    _check_folder(options.out)
    try:
        gpu = find_gpu(kind.dtype, kind.out_dtype)
    except NoGpu as problem:
        print(f"kiln: tune: {problem}", file=sys.stderr)
        return ENVIRONMENT
    table = _head(control.diagnose()["devices"][gpu.ordinal])
    results: list[tuple[Shape, Measured]] = []
    progress = Progress(len(shapes))
    previous = control.set_tuning(None)  # what the model chooses is wanted
    try:
        for shape in shapes:
            measured = measure(kind, shape, gpu, options.seconds, table["arch"])
            results.append((shape, measured))
            table["entries"].append(_entry(kind, shape, measured))
            table["model_over_best"] = summary(results)
            _write(options.out, table)
            progress(shape, measured)
    except gpu.out_of_memory as error:
        print(f"kiln: tune: {shape} does not fit in the GPU's memory: {error}", file=sys.stderr)
        return ENVIRONMENT
    finally:
        control.set_tuning(previous)
    if options.json:
        print_json(table)
    else:
        _print_report(results, table["model_over_best"], options.out)
    return OK


class Progress:
    """Lines on stderr: count, time left, shape, outcome."""

    def __init__(self, total: int) -> None:
        self.start = time.monotonic()
        self.done, self.total = 0, total
        print(f"{total} shapes; the first takes longer: the tiles are compiled", file=sys.stderr)

    def __call__(self, shape: Shape, measured: Measured) -> None:
        self.done += 1
        left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        width = len(str(self.total))
        print(
            f"[{self.done:{width}}/{self.total}] {left:4.0f} s left  {shape}: "
            f"{tile_text(measured.best)} {measured.best_us:.1f} us, best of {measured.tiles}; "
            f"the model's {measured.ratio * 100 - 100:.1f} % longer",
            file=sys.stderr,
            flush=True,
        )


def summary(results: list[tuple[Shape, Measured]]) -> dict[str, Any]:
    """The model's times over the best ones: how much there was to win."""
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


def _kind(options: argparse.Namespace) -> Kind:
    is_f8 = options.dtype.startswith("float8")
    if options.precision == "fast" and not is_f8:
        raise ValueError("--precision fast needs a --dtype of 8-bit floats")
    out_dtype = options.out_dtype or ("bfloat16" if is_f8 else options.dtype)
    return Kind(options.dtype, out_dtype, options.layout, options.precision)


def _shapes(options: argparse.Namespace) -> list[Shape]:
    if options.shape:
        if options.m:
            raise ValueError("--m belongs to --model; a --shape has its own M")
        return list(dict.fromkeys(options.shape))
    _, model = models.load_model(options.model)
    projections = dict.fromkeys((n, k) for n, k in model["gemm"].values())
    return [Shape(m, n, k) for n, k in projections for m in options.m or _ROWS]


def _check_folder(path: str) -> None:
    # Before minutes of measuring, not after.
    if os.path.isdir(path):
        raise ValueError(f"--out {path} is a folder; give the path of a file")
    with tempfile.TemporaryFile(dir=os.path.dirname(path) or "."):
        pass


def _write(path: str, table: dict[str, Any]) -> None:
    # Whoever reads meanwhile, or after Ctrl-C, finds a whole table.
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


def _size(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) > 0 else 0


def _shape(text: str) -> Shape:
    sizes = [_size(part) for part in re.split("[x,]", text)]
    if len(sizes) != 3 or not all(sizes):
        raise argparse.ArgumentTypeError(f"must be MxNxK such as 64x4096x14336, got {text!r}")
    return Shape(*sizes)


def _sizes(text: str) -> list[int]:
    sizes = [_size(part) for part in text.split(",")]
    if not all(sizes):
        raise argparse.ArgumentTypeError(f"must be whole numbers like 1,16,64, got {text!r}")
    return list(dict.fromkeys(sizes))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be seconds from 0 to 3600, got {text!r}")
    return seconds
