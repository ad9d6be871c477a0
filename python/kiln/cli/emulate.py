"""`kiln emulate`: runs a kernel of a PTX file on the emulated device, buffers made from flags."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .. import EmulatorError
from ..emulation import emulate
from .buffers import SPEC_HELP, Buffer, parse_argument
from .output import CHECK_FAILED, OK, add_command, add_json_flag, print_json, print_table

_SITE = ("fault", "kernel", "block", "warp", "lane", "ptx_line", "instruction", "source")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "emulate",
        "run a kernel of a PTX file on the emulated device and report what it did",
        """Runs one kernel of a PTX file on the emulated device, with every check on: accesses out
        of bounds, reads of what was never written, races on shared memory, barriers that are never
        completed. Prints what its buffers hold afterwards. If there is a fault, prints it with
        kernel, thread and PTX line, and exits with 1. Needs no GPU; buffers need NumPy. See
        docs/emulator.md.""",
        [
            ("kiln emulate add.ptx --grid 8 --block 128 --arg f32[1024]=random \\", ""),
            ("    --arg f32[1024]=zeros --arg u32=1024", "a buffer in, a buffer out, a size"),
            ("kiln emulate add.ptx --arg in.npy --arg x.npy:y.npy", "buffers from and to files"),
            ("kiln emulate add.ptx --arg f32[32]=iota --trace 0:5", "what thread 5 of block 0 did"),
        ],
    )
    parser.epilog = f"{SPEC_HELP}\n{parser.epilog}"
    parser.add_argument("file", help="a PTX file, of nvcc -ptx or NVRTC or written by hand")
    parser.add_argument("--entry", help="the kernel's name; default: the only one")
    parser.add_argument(
        "--grid", type=_triple, default=(1, 1, 1), help="blocks, X[,Y[,Z]]; default: 1"
    )
    parser.add_argument(
        "--block", type=_triple, default=(32, 1, 1), help="threads, as --grid; default: 32"
    )
    parser.add_argument(
        "--cluster",
        type=_triple,
        default=(1, 1, 1),
        help="blocks of a cluster, as --grid; default: 1",
    )
    parser.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory")
    parser.add_argument(
        "--arg", dest="arguments", metavar="SPEC", action="append", default=[], help="see below"
    )
    parser.add_argument(
        "--arch", help="the device's arch, such as sm_90a; default: the file's target"
    )
    parser.add_argument(
        "--schedule",
        choices=["late", "eager"],
        default="late",
        help="when asynchronous work is done; default: late",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="a seed that shuffles warps and blocks; 0 = in order"
    )
    parser.add_argument(
        "--no-checks",
        dest="checks",
        action="store_false",
        help="do not check for races, uninitialised reads and missing fences",
    )
    parser.add_argument(
        "--steps", type=int, default=0, help="how many warp instructions a block may take"
    )
    parser.add_argument(
        "--trace", type=_trace, metavar="BLOCK:THREAD", help="print that thread's instructions"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the kernel and prints what became of its buffers."""
    arguments = [parse_argument(text, index) for index, text in enumerate(options.arguments)]
    ptx = _read(options.file).encode()  # bytes, which are never taken for a path
    start = time.perf_counter()
    error = None
    try:
        emulate(
            ptx,
            entry=options.entry,
            grid=options.grid,
            block=options.block,
            cluster=options.cluster,
            arguments=[argument.value for argument in arguments],
            shared_bytes=options.shared,
            arch=options.arch,
            schedule=options.schedule,
            seed=options.seed,
            checks=options.checks,
            step_limit=options.steps,
            trace=options.trace,
        )
    except EmulatorError as fault:
        error = fault
    seconds = time.perf_counter() - start
    buffers = [argument for argument in arguments if isinstance(argument, Buffer)]
    for buffer in buffers:
        buffer.save()
    if options.json:
        print_json(_report(buffers, seconds, error))
    else:
        _print(buffers, seconds, error)
    return CHECK_FAILED if error else OK


def _report(buffers: list[Buffer], seconds: float, error: EmulatorError | None) -> dict[str, Any]:
    fault = error and {"report": str(error), **{name: getattr(error, name) for name in _SITE}}
    return {"buffers": [buffer.summary() for buffer in buffers], "seconds": seconds, "fault": fault}


def _print(buffers: list[Buffer], seconds: float, error: EmulatorError | None) -> None:
    if buffers:
        rows = [buffer.summary() for buffer in buffers]
        print_table(
            ["argument", "type", "changed", "min", "max", "mean", "nan", "first values"],
            [
                [
                    row["argument"],
                    f"{row['type']}{row['shape']}",
                    row["changed"],
                    *(_text(row[name]) for name in ("min", "max", "mean")),
                    row["nan"],
                    " ".join(_text(value) for value in row["first"]),
                ]
                for row in rows
            ],
        )
    if error:
        print(f"\n{error}")
    else:
        print(f"ok: {seconds:.3f} s")


def _text(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        try:
            text = file.read()
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not text; give a PTX file and not a cubin") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; give a PTX file, such as nvcc -ptx writes")
    return text


def _triple(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"must be X[,Y[,Z]], each at least 1, got {text!r}")
    return sizes


def _trace(text: str) -> tuple[int, int]:
    block, _, thread = text.partition(":")
    if not (block.isdecimal() and thread.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be BLOCK:THREAD, such as 0:5, got {text!r}")
    return int(block), int(thread)
