"""`kiln inspect`: what a kernel is made of, for properties given as flags."""

from __future__ import annotations

import argparse
from typing import Any

from .. import control
from .output import OK, add_json_flag, dtype_name, operand_dtype_name, print_json, print_table

_TILES = {
    "flash_attention": ("block_q", "block_kv", "warps", "stages"),
    "gemm": ("block_m", "block_n", "block_k", "stages", "cluster"),
}

_ACTIVATIONS = [
    *("none", "relu", "gelu", "gelu_tanh", "silu"),
    *("swiglu", "geglu", "geglu_tanh"),  # gated
]


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command and its operations."""
    text = "show the kernels that given properties select: resources, path, source, PTX"
    parser = commands.add_parser("inspect", help=text, description=text)
    operations = parser.add_subparsers(dest="op", required=True, metavar="OPERATION")
    _add_attention(operations.add_parser("flash_attention", help="attention forward"))
    _add_gemm(operations.add_parser("gemm", help="matrix product"))


def run(options: argparse.Namespace) -> int:
    """Inspects and prints."""
    kernels = control.inspect(make_spec(options), options.arch)
    if options.json:
        print_json(kernels)
    elif options.source or options.ptx:
        for kernel in kernels:
            print(f"// {kernel['what']}, {kernel['config']}")
            print(kernel["source" if options.source else "ptx"])
    else:
        _print_kernels(kernels)
    return OK


def make_spec(options: argparse.Namespace) -> dict[str, Any]:
    """The spec that the flags say; a tile field that was not given stands for every row."""
    names = (*options.properties, *_TILES[options.op])
    values = {name: getattr(options, name) for name in names}
    return {"op": options.op, **{key: value for key, value in values.items() if value is not None}}


def _add_attention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", type=dtype_name, default="bfloat16")
    parser.add_argument("--head-dim", type=int, required=True)
    parser.add_argument("--head-dim-v", type=int, help="default: --head-dim")
    masks = parser.add_mutually_exclusive_group()
    masks.add_argument(
        "--causal", dest="mask", action="store_const", const="causal", default="none"
    )
    masks.add_argument("--window", dest="mask", action="store_const", const="window")
    parser.add_argument("--softcap", action="store_true")
    parser.add_argument("--alibi", action="store_true")
    parser.add_argument("--sinks", type=dtype_name, help="dtype of the sinks")
    parser.add_argument("--unaligned", dest="aligned", action="store_false")
    properties = ("dtype", "head_dim", "head_dim_v", "mask", "softcap", "alibi", "sinks", "aligned")
    _add_common(parser, "flash_attention", properties)


def _add_gemm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", type=operand_dtype_name, default="bfloat16")
    parser.add_argument("--dtype-b", type=operand_dtype_name, help="default: --dtype")
    parser.add_argument(
        "--out-dtype", type=dtype_name, help="default: --dtype, bfloat16 for 8-bit floats"
    )
    parser.add_argument("--precision", choices=["full", "fast"], help="of 8-bit floats")
    parser.add_argument("--layout", choices=["nn", "nt", "tn", "tt"], default="nt")
    parser.add_argument("--accumulator", choices=["float32", "float16"], default="float32")
    parser.add_argument("--bias", type=dtype_name, help="dtype of the bias")
    parser.add_argument("--residual", type=dtype_name, help="dtype of the residual")
    for name, outputs in (("scale-a", "row"), ("scale-b", "column")):
        parser.add_argument(
            f"--{name}",
            choices=["none", "tensor", "vector"],
            help=f"a factor of all outputs, or of each {outputs}",
        )
    parser.add_argument("--activation", choices=_ACTIVATIONS)
    parser.add_argument("--gate", choices=["halves", "interleaved"], help="of a gated activation")
    parser.add_argument(
        "--epilogue", help="a C++ expression of acc, bias, residual, row, col, batch"
    )
    for name, tensors in (("loads", "a and b"), ("stores", "out, bias and residual")):
        parser.add_argument(
            f"--{name}", choices=["elements", "boxes", "vectors"], help=f"what {tensors} admit"
        )
    properties = (
        "dtype",
        "dtype_b",
        "out_dtype",
        "precision",
        "layout",
        "accumulator",
        "bias",
        "residual",
        "scale_a",
        "scale_b",
        "activation",
        "gate",
        "epilogue",
        "loads",
        "stores",
    )
    _add_common(parser, "gemm", properties)


def _add_common(parser: argparse.ArgumentParser, op: str, properties: tuple[str, ...]) -> None:
    for name in _TILES[op]:
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, help="one row of the config table")
    parser.add_argument("--arch", required=True, help="such as sm_90a")
    texts = parser.add_mutually_exclusive_group()
    texts.add_argument("--source", action="store_true", help="print the generated source")
    texts.add_argument("--ptx", action="store_true", help="print the PTX")
    add_json_flag(parser)
    parser.set_defaults(run=run, properties=properties)


def _print_kernels(kernels: list[dict[str, Any]]) -> None:
    print_table(
        ["kernel", "tile", "registers", "shared", "spilled", "threads", "cubin", "compile"],
        [
            [
                kernel["what"],
                kernel["config"],
                kernel["registers"],
                kernel["dynamic_shared_bytes"],
                kernel["spill_bytes"],
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
