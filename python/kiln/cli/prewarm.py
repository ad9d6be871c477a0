"""`kiln prewarm`: compiles the kernels of a model or of a spec file ahead of time."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from .. import control, models
from .output import (
    CHECK_FAILED,
    COMPILE_FAILED,
    ENVIRONMENT,
    OK,
    add_json_flag,
    dtype_name,
    nvrtc_problem,
    print_json,
    print_table,
)

_NOT_WRITTEN = "could not be written to the cache"


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command."""
    text = "compile kernels into the cache, without tensors and without a GPU"
    parser = commands.add_parser("prewarm", help=text, description=text)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", help="a known model, or the path of a config.json")
    what.add_argument("--spec", metavar="FILE", help="a JSON file of specs; - reads stdin")
    parser.add_argument("--arch", action="append", help="such as sm_90a; default: of the GPUs here")
    parser.add_argument("--dtype", type=dtype_name, default="bfloat16", help="of --model's kernels")
    parser.add_argument("--jobs", type=_positive, help="compiles at a time; default: one per core")
    parser.add_argument("--recompile", action="store_true", help="also what the cache has")
    parser.add_argument(
        "--check", action="store_true", help="only report; exit 1 when one is missing"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prewarms and reports."""
    specs = _specs(options)
    report = control.prewarm(
        specs,
        arch=options.arch,
        jobs=options.jobs,
        recompile=options.recompile,
        progress=Progress(),
        check=options.check,
    )
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    return _exit_code(report)


class Progress:
    """Lines on stderr: count, time left, kernel, outcome."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def __call__(self, done: int, total: int, what: str, outcome: str, seconds: float) -> None:
        left = (time.monotonic() - self.start) / done * (total - done)
        width = len(str(total))
        print(
            f"[{done:{width}}/{total}] {left:4.0f} s left  {what}: {outcome.splitlines()[0]}"
            f" ({seconds:.2f} s)",
            file=sys.stderr,
            flush=True,
        )


def _specs(options: argparse.Namespace) -> Any:
    if options.model is not None:
        if options.dtype == "float32":
            raise ValueError("--dtype must be bfloat16 or float16 for --model")
        _, model = models.load_model(options.model)
        return models.model_specs(model, options.dtype)
    if options.spec == "-":
        return _parse(sys.stdin.read(), "stdin")
    with open(options.spec, encoding="utf-8") as file:
        return _parse(file.read(), options.spec)


def _parse(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _exit_code(report: dict[str, Any]) -> int:
    if report["failed"]:
        is_disk = all(_NOT_WRITTEN in failure["error"] for failure in report["failed"])
        return ENVIRONMENT if is_disk or nvrtc_problem() else COMPILE_FAILED
    return CHECK_FAILED if report["missing"] else OK


def _print_report(report: dict[str, Any]) -> None:
    print_table(
        ["kernel", "arch", "outcome", "seconds"],
        [
            [
                kernel["what"],
                kernel["arch"],
                kernel["outcome"].split(":")[0],
                f"{kernel['seconds']:.2f}",
            ]
            for kernel in report["kernels"]
        ],
    )
    print(
        f"{report['total']} kernels: {report['compiled']} compiled, {report['cached']} cached, "
        f"{report['missing']} missing, {len(report['failed'])} failed, {report['seconds']:.1f} s"
    )
    for failure in report["failed"]:
        print(f"{failure['what']}: {failure['error']}", file=sys.stderr)


def _positive(text: str) -> int:
    if not (text.isdecimal() and len(text) < 9 and 1 <= int(text) <= control.MAX_JOBS):
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {control.MAX_JOBS}, got {text!r}"
        )
    return int(text)
