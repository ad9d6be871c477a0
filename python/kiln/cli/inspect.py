"""`kiln inspect`: what a kernel is made of, for properties given as flags."""

from __future__ import annotations

import argparse
from typing import Any

from .. import control
from ..json_file import read_json
from .kernel_diff import (
    differences,
    one_kernel,
    opcode_counts,
    print_opcodes,
    print_resources,
    unified_diff,
)
from .output import (
    OK,
    add_command,
    add_json_flag,
    print_json,
    print_table,
)
from .properties import add_properties, families, make_spec
from .sass import disassemble, find_disassembler
from .terminal import Painted

_COMPARED = """their resources as a table or, with --source, --ptx or --sass, what differs in their
text; of SASS, in the counts of instructions."""

_EXAMPLES = {
    "flash_attention": [
        ("kiln inspect flash_attention --head-dim 128 --causal --arch sm_90a", ""),
        ("kiln inspect flash_attention --head-dim 64 --block-q 64 --arch sm_80 --sass", ""),
        ("kiln inspect flash_attention --head-dim 64 --arch sm_80 --diff 128x128x1 64x64x2", ""),
    ],
    "gemm": [
        ("kiln inspect gemm --arch sm_90a --block-m 128 --block-n 256", "some rows"),
        ("kiln inspect gemm --dtype f16 --epilogue 'acc * acc' --arch sm_80 --source", ""),
        ("kiln inspect gemm --arch sm_90a --diff 128x256x64x4 128x192x64x4 --sass", ""),
    ],
}


def add_parser(commands: Any) -> None:
    """Adds the command and its operations."""
    parser = add_command(
        commands,
        "inspect",
        "show the kernels that given properties select: resources, path, source, PTX, SASS",
        f"""Compiles, or finds in the cache, the kernels that given properties select, and shows
        what they are made of: registers, shared memory, spills, why this path was chosen, the
        generated source, PTX or SASS. Needs NVRTC and no GPU. --diff, and
        `kiln inspect diff`, compare two kernels: {_COMPARED}""",
        [
            ("kiln inspect gemm --arch sm_90a", "every row of the config table"),
            ("kiln inspect flash_attention --head-dim 128 --causal --arch sm_80 --ptx", ""),
            ("kiln inspect gemm --arch sm_90a --diff 128x256x64x4 128x192x64x4", "two rows"),
            ("kiln inspect diff before.json after.json --arch sm_90a --sass", "two specs"),
        ],
    )
    operations = parser.add_subparsers(dest="op", required=True, metavar="OPERATION")
    for op in families():
        operation = add_command(
            operations,
            op,
            f"kernels of {families()[op]['title']}",
            f"""Takes the properties of a call of {op} as flags. A tile field that is not given
            stands for every row of the config table. --diff compares two of them: {_COMPARED}""",
            _EXAMPLES.get(op, [(f"kiln inspect {op} --arch sm_90a", "every row")]),
        )
        add_properties(operation, op)
        operation.add_argument(
            "--diff", nargs=2, metavar=("A", "B"), help="compare two rows, named by their tiles"
        )
        _add_output(operation)
    diff = add_command(
        operations,
        "diff",
        "two kernels, each of a spec file that names one tile",
        f"""Compares two kernels of any kind, each given by a spec file that stands for one row of
        the config table (docs/prewarm.md lists the fields): {_COMPARED}""",
        [
            ("kiln inspect diff a.json b.json --arch sm_90a", "resources"),
            ("kiln inspect diff a.json b.json --arch sm_90a --ptx", "a unified diff"),
        ],
    )
    for name in ("a", "b"):
        diff.add_argument(f"file_{name}", metavar=name.upper(), help="a file of one spec")
    _add_output(diff)


def run(options: argparse.Namespace) -> int:
    """Inspects and prints."""
    tool = find_disassembler() if options.text == "sass" else ""  # before compiling
    if options.op == "diff":
        pair = [(_read_spec(path), "") for path in (options.file_a, options.file_b)]
        return _run_diff(pair, tool, options)
    spec = make_spec(options)
    if options.diff:
        return _run_diff([(spec, tile) for tile in options.diff], tool, options)
    # A source is shown without a compile, also one that does not compile.
    compiles = options.json or options.text != "source"
    kernels = [
        _with_sass(kernel, tool) for kernel in control.inspect(spec, options.arch, compile=compiles)
    ]
    if options.json:
        print_json(kernels)
    elif options.text:
        for kernel in kernels:
            print(f"// {kernel['what']}, {kernel['config']}")
            print(kernel[options.text])
    else:
        _print_kernels(kernels)
    return OK


def _run_diff(
    pair: list[tuple[dict[str, Any], str]], tool: str, options: argparse.Namespace
) -> int:
    one, two = (_with_sass(one_kernel(spec, options.arch, tile), tool) for spec, tile in pair)
    report: dict[str, Any] = {"kernels": [one, two], "differences": differences(one, two)}
    if options.text == "sass":
        report["opcodes"] = opcode_counts(one["sass"], two["sass"])
    elif options.text:
        report["diff"] = unified_diff(one, two, options.text)
    if options.json:
        print_json(report)
    elif options.text == "sass":
        print_opcodes(report["opcodes"])
    elif options.text:
        print(report["diff"] or f"the {options.text} of both is the same")
    else:
        print_resources(one, two)
    return OK


def _with_sass(kernel: dict[str, Any], tool: str) -> dict[str, Any]:
    cubin = kernel.pop("cubin", b"")
    return {**kernel, "sass": disassemble(tool, cubin)} if tool else kernel


def _read_spec(path: str) -> dict[str, Any]:
    spec = read_json(path)
    if not isinstance(spec, dict):
        raise ValueError(f"{path} must hold one spec, a JSON object; see docs/prewarm.md")
    return spec


class _Once(argparse.Action):
    """Stores a value, and refuses a second one: other commands take several archs."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "give it once; kernels of one arch are shown")
        setattr(namespace, self.dest, values)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", action=_Once, required=True, help="such as sm_90a")
    texts = parser.add_mutually_exclusive_group()
    for name, what in (
        ("source", "generated source, without a compile"),
        ("ptx", "PTX"),
        ("sass", "machine code"),
    ):
        texts.add_argument(
            f"--{name}", dest="text", action="store_const", const=name, help=f"print the {what}"
        )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def _print_kernels(kernels: list[dict[str, Any]]) -> None:
    print_table(
        ["kernel", "tile", "registers", "shared", "spilled", "threads", "cubin", "compile"],
        [
            [
                kernel["what"],
                kernel["config"],
                kernel["registers"],
                kernel["dynamic_shared_bytes"],
                Painted(str(kernel["spill_bytes"]), "bad" if kernel["spill_bytes"] else "good"),
                kernel["threads"],
                kernel["cubin_bytes"],
                f"{kernel['compile_seconds']:.2f} s",
            ]
            for kernel in kernels
        ],
    )
    for kernel in kernels:
        print(f"\n{kernel['config']}: {kernel['path']} path, key {kernel['key']}")
        for reason in kernel["why"]:
            print(f"  {reason}")
