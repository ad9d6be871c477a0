"""The properties of a kernel as flags, and the spec that they say."""

from __future__ import annotations

import argparse
from typing import Any

from .output import dtype_name, operand_dtype_name

_TILES = {
    "flash_attention": ("block_q", "block_kv", "warps", "stages"),
    "gemm": ("block_m", "block_n", "block_k", "stages", "cluster"),
}

_ACTIVATIONS = [
    *("none", "relu", "gelu", "gelu_tanh", "silu"),
    *("swiglu", "geglu", "geglu_tanh"),  # gated
]


def make_spec(options: argparse.Namespace) -> dict[str, Any]:
    """The spec that the flags say; a tile field that was not given stands for every row."""
    names = (*options.properties, *_TILES[options.op])
    values = {name: getattr(options, name) for name in names}
    return {"op": options.op, **{key: value for key, value in values.items() if value is not None}}


def add_attention(parser: argparse.ArgumentParser) -> None:
    """The properties of an attention call."""
    parser.add_argument(
        "--dtype", type=dtype_name, default="bfloat16", help="of q, k, v and out; default: bfloat16"
    )
    parser.add_argument("--head-dim", type=int, required=True, help="a multiple of 8 up to 256")
    parser.add_argument("--head-dim-v", type=int, help="default: --head-dim")
    masks = parser.add_mutually_exclusive_group()
    masks.add_argument(
        "--causal", dest="mask", action="store_const", const="causal", default="none", help="mask"
    )
    masks.add_argument("--window", dest="mask", action="store_const", const="window", help="mask")
    parser.add_argument("--softcap", action="store_true", help="of the logits")
    parser.add_argument("--alibi", action="store_true", help="slopes")
    parser.add_argument("--sinks", type=dtype_name, help="dtype of the sinks")
    parser.add_argument(
        "--attn-mask",
        choices=["bool", "float16", "bfloat16", "float32"],
        help="dtype of scaled_dot_product_attention's mask",
    )
    parser.add_argument(
        "--no-mask-pairs",
        dest="mask_pairs",
        action="store_false",
        help="attn_mask is read a key at a time: its keys are apart, odd or at an odd address",
    )
    parser.add_argument(
        "--unaligned", dest="aligned", action="store_false", help="not at multiples of 16 bytes"
    )
    properties = (
        "dtype",
        "head_dim",
        "head_dim_v",
        "mask",
        "softcap",
        "alibi",
        "sinks",
        "attn_mask",
        "mask_pairs",
        "aligned",
    )
    _add_tile(parser, "flash_attention", properties)


def _add_layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layout",
        choices=["nn", "nt", "tn", "tt"],
        default="nt",
        help="of a, then b; t = stored transposed; default: nt",
    )


def add_product(parser: argparse.ArgumentParser) -> None:
    """What `tune` and `bench` ask of a product beside its sizes."""
    parser.add_argument(
        "--dtype", type=operand_dtype_name, default="bfloat16", help="default: bfloat16"
    )
    parser.add_argument(
        "--out-dtype", type=dtype_name, help="default: --dtype, bfloat16 for 8-bit floats"
    )
    _add_layout(parser)
    parser.add_argument(
        "--precision", choices=["full", "fast"], default="full", help="of 8-bit floats"
    )


def add_gemm(parser: argparse.ArgumentParser) -> None:
    """The properties of a matrix product."""
    parser.add_argument(
        "--dtype", type=operand_dtype_name, default="bfloat16", help="of a and b; default: bfloat16"
    )
    parser.add_argument("--dtype-b", type=operand_dtype_name, help="default: --dtype")
    parser.add_argument(
        "--out-dtype", type=dtype_name, help="default: --dtype, bfloat16 for 8-bit floats"
    )
    parser.add_argument("--precision", choices=["full", "fast"], help="of 8-bit floats")
    _add_layout(parser)
    parser.add_argument(
        "--accumulator", choices=["float32", "float16"], default="float32", help="default: float32"
    )
    parser.add_argument("--bias", type=dtype_name, help="dtype of the bias")
    parser.add_argument("--residual", type=dtype_name, help="dtype of the residual")
    for name, outputs in (("scale-a", "row"), ("scale-b", "column")):
        parser.add_argument(
            f"--{name}",
            choices=["none", "tensor", "vector"],
            help=f"a factor of all outputs, or of each {outputs}",
        )
    parser.add_argument("--activation", choices=_ACTIVATIONS, help="of the outputs")
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
    _add_tile(parser, "gemm", properties)


def _add_tile(parser: argparse.ArgumentParser, op: str, properties: tuple[str, ...]) -> None:
    for name in _TILES[op]:
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, help="one row of the config table")
    parser.set_defaults(properties=properties)
