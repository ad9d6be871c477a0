"""`kiln prewarm`: compiles the kernels of a model or of a spec file ahead of time."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from .. import control, models
from ..json_file import parse_specs, read_specs
from .output import (
    CHECK_FAILED,
    COMPILE_FAILED,
    ENVIRONMENT,
    OK,
    add_command,
    add_json_flag,
    dtype_name,
    nvrtc_problem,
    print_json,
    print_table,
)
from .terminal import Painted, Progress

_NOT_WRITTEN = "could not be written to the cache"
_COLOURS = {"missing": "caution", "cancelled": "caution", "failed": "bad"}


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "prewarm",
        "compile kernels into the cache, without tensors and without a GPU",
        """Compiles the kernels of a model, or of a spec file, into the cache ahead of their first
        use: in an image build, or on a machine without a GPU for GPUs of other machines. Needs
        NVRTC and no driver. Once everything is in the cache, KILN_JIT=off makes sure that a server
        compiles nothing. docs/prewarm.md describes specs.""",
        [
            ("kiln prewarm --model llama-3.1-8b --arch sm_90a --jobs 8", "a known model"),
            ("kiln prewarm --model ./config.json --arch sm_80", "a Hugging Face config, or folder"),
            ("kiln prewarm --spec kernels.json --arch sm_80 --arch sm_90a", "specs of your own"),
            ("kiln prewarm --spec kernels.json --check", "what is missing for the GPUs here?"),
        ],
    )
    add_problems(parser, required=True)
    parser.add_argument(
        "--jobs",
        type=_positive,
        help="how many kernels are compiled at a time; default: one per core",
    )
    parser.add_argument("--recompile", action="store_true", help="also compile what the cache has")
    parser.add_argument(
        "--check", action="store_true", help="only report what is missing; exit 1 if anything is"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def add_problems(parser: argparse.ArgumentParser, required: bool) -> None:
    """The flags that say which kernels are meant."""
    what = parser.add_mutually_exclusive_group(required=required)
    what.add_argument("--model", help="a known model, or the path of a config.json or its folder")
    what.add_argument(
        "--spec", metavar="FILE", help="a JSON file of specs, or one of KILN_RECORD; - reads stdin"
    )
    here = "the archs of this machine's GPUs"
    parser.add_argument(
        "--arch",
        action="append",
        help="such as sm_90a; repeatable; default: "
        + (here if required else f"all; with --spec or --model, {here}"),
    )
    parser.add_argument(
        "--dtype",
        type=dtype_name,
        help="of --model's kernels; default: the dtype in its config.json, else bfloat16",
    )
    parser.add_argument(
        "--cache-dtype",
        choices=models.CACHE_DTYPES,
        help="of a quantised KV cache, with --model: its kernels, too",
    )


def run(options: argparse.Namespace) -> int:
    """Prewarms and reports."""
    progress = Progress()
    try:
        with problems_of(options) as specs:
            report = control.prewarm(
                specs,
                arch=options.arch,
                jobs=options.jobs,
                recompile=options.recompile,
                progress=lambda *step: _show(progress, *step),
                check=options.check,
            )
    finally:
        progress.close()
    if not report["total"]:
        print("kiln: the specs name no kernel, so there is nothing to compile", file=sys.stderr)
    if options.json:
        print_json(report)
    else:
        _print_report(report, options.check)
    return _exit_code(report)


def _show(
    progress: Progress, done: int, total: int, what: str, outcome: str, seconds: float
) -> None:
    progress.total = total
    text = f"{what}: {outcome.splitlines()[0]} ({seconds:.2f} s)"
    progress.step(done, text, stays=outcome.startswith("failed"))


@contextlib.contextmanager
def problems_of(options: argparse.Namespace) -> Iterator[Any]:
    """The specs that the flags name, or None. Where they are of a file, an error about one of them
    says which."""
    if options.spec is None:
        yield _model_specs(options)
        return
    _refuse_dtypes(options)
    is_stdin = options.spec == "-"
    specs = parse_specs(sys.stdin.read(), "stdin") if is_stdin else read_specs(options.spec)
    try:
        yield list(specs.values())
    except ValueError:
        _check_each(specs, options.arch)
        raise


def _check_each(specs: dict[str, Any], arch: list[str] | None) -> None:
    """Raises the error of the first spec that has one, with its place."""
    control.prewarm([], arch, check=True)  # an error of the archs is about no spec
    for place, spec in specs.items():
        try:
            control.prewarm([spec], arch, check=True)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None


def _refuse_dtypes(options: argparse.Namespace) -> None:
    for flag, value in (("--dtype", options.dtype), ("--cache-dtype", options.cache_dtype)):
        if value is not None:
            raise ValueError(f"{flag} belongs to --model; a spec has dtypes of its own")


def _model_specs(options: argparse.Namespace) -> list[dict[str, Any]] | None:
    if options.model is None:
        _refuse_dtypes(options)
        return None
    if options.dtype == "float32":
        raise ValueError("--dtype must be bfloat16 or float16 for --model")
    _, model = models.load_model(options.model)
    return models.model_specs(model, options.dtype, options.cache_dtype)


def _exit_code(report: dict[str, Any]) -> int:
    if report["failed"]:
        is_disk = all(_NOT_WRITTEN in failure["error"] for failure in report["failed"])
        return ENVIRONMENT if is_disk or nvrtc_problem() else COMPILE_FAILED
    return CHECK_FAILED if report["missing"] else OK


def _print_report(report: dict[str, Any], only_missing: bool) -> None:
    kernels = report["kernels"]
    if only_missing:
        kernels = [kernel for kernel in kernels if kernel["outcome"] != "cached"]
    if kernels:
        last = "key" if only_missing else "seconds"
        print_table(["kernel", "arch", "outcome", last], [_row(kernel, last) for kernel in kernels])
    print(
        f"{report['total']} kernels: {report['compiled']} compiled, {report['cached']} cached, "
        f"{report['missing']} missing, {len(report['failed'])} failed, {report['seconds']:.1f} s"
    )
    if report["missing"]:
        print("what is missing is compiled by the same command without --check")
    for error, names in _by_error(report["failed"]).items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"{names[0]}{others}: {error}", file=sys.stderr)


def _by_error(failures: list[dict[str, str]]) -> dict[str, list[str]]:
    """The kernels that failed, by their error: a missing NVRTC fails all of them alike."""
    names: dict[str, list[str]] = {}
    for failure in failures:
        names.setdefault(failure["error"], []).append(failure["what"])
    return names


def _row(kernel: dict[str, Any], last: str) -> list[str]:
    outcome = kernel["outcome"].split(":")[0]
    return [
        kernel["what"],
        kernel["arch"],
        Painted(outcome, _COLOURS.get(outcome, "good")),
        f"{kernel[last]:.2f}" if last == "seconds" else kernel[last],
    ]


def _positive(text: str) -> int:
    if not (text.isdecimal() and len(text) < 9 and 1 <= int(text) <= control.MAX_JOBS):
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {control.MAX_JOBS}, got {text!r}"
        )
    return int(text)
