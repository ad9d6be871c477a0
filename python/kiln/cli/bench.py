"""`kiln bench`: how fast Kiln is on this GPU and these shapes, beside PyTorch."""

from __future__ import annotations

import argparse
from typing import Any

from .. import __version__, control
from .bench_cases import AttentionCase, GemmCase
from .bench_measure import measure, peaks_of
from .gemm_timing import Kind, Shape
from .gpu_arrays import find_gpu
from .output import (
    OK,
    Unavailable,
    add_command,
    add_json_flag,
    dtype_name,
    print_json,
    print_table,
)
from .properties import add_product
from .sizes import bench_shape, seconds, sizes
from .terminal import Painted, Progress

_METHOD = """Kiln and PyTorch take turns in one process, and L2 is flushed before each call. The
figures are medians, and the results are compared first. Needs a GPU. Without PyTorch, Kiln is
measured alone, in float16 or float32. Without CuPy as well, calls get no workspace, so none of them
splits its tiles. The emulated device is never timed."""


def add_parser(commands: Any) -> None:
    """Adds the command and its operations."""
    parser = add_command(
        commands,
        "bench",
        "measure attention or a matrix product on this GPU, beside PyTorch",
        f"""Measures the given shapes on this machine's GPU: microseconds, TFLOP/s and TB/s, their
        share of the device's peak if its datasheet is known, and PyTorch's time over Kiln's.
        {_METHOD}""",
        [
            ("kiln bench flash_attention --shape 2x4096x32x128 --kv-heads 8 --causal", ""),
            ("kiln bench gemm --m 1,64,4096 --n 4096 --k 14336", ""),
            ("kiln bench gemm --m 4096 --n 4096 --k 4096 --json", "for programs"),
        ],
    )
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    attention = add_command(
        operations,
        "flash_attention",
        "attention forward, beside scaled_dot_product_attention",
        f"""Measures the forward pass of attention beside PyTorch's scaled_dot_product_attention.
        The operations are those of the pairs that the mask leaves; each tensor's bytes count
        once. {_METHOD}""",
        [
            ("kiln bench flash_attention --shape 2x4096x32x128 --kv-heads 8 --causal", "prefill"),
            ("kiln bench flash_attention --shape 8x1x32x128 --kv-len 8192 --kv-heads 8", "decode"),
            (
                "kiln bench flash_attention --shape 1x8192x16x128 --window 1023",
                "no peer: Kiln alone",
            ),
        ],
    )
    _add_attention(attention)
    gemm = add_command(
        operations,
        "gemm",
        "a matrix product, beside torch.matmul",
        f"""Measures out[M, N] = a[M, K] b[K, N] beside torch.matmul. {_METHOD}""",
        [
            ("kiln bench gemm --m 4096 --n 4096 --k 4096", ""),
            ("kiln bench gemm --m 1,16,64,512 --n 28672 --k 4096 --dtype f16", "several M"),
            ("kiln bench gemm --m 4096 --n 4096 --k 4096 --dtype float8_e4m3fn", "on Hopper"),
        ],
    )
    _add_gemm(gemm)
    for operation in (attention, gemm):
        operation.add_argument(
            "--seconds",
            type=seconds,
            default=1.0,
            help="how long each shape is measured; default: 1",
        )
        add_json_flag(operation)
        operation.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures and prints."""
    cases = options.cases(options)
    gpu = find_gpu(*{dtype for case in cases for dtype in case.dtypes}, may_be_bare=True)
    device = control.diagnose()["devices"][gpu.ordinal]
    peaks = peaks_of(device["name"])
    progress, results = Progress(len(cases)), []
    try:
        for case in cases:
            results.append(measure(case, gpu, options.seconds, peaks))
            progress.step(len(results), str(case))
    except gpu.out_of_memory as error:
        raise Unavailable(
            f"bench: {case} does not fit in the GPU's memory ({error}): free some, or measure a "
            "smaller shape"
        ) from None
    finally:
        progress.close()
    if options.json:
        print_json(
            {"kiln": __version__, "device": device["name"], "peaks": peaks, "results": results}
        )
    else:
        _print_report(device["name"], peaks, results)
    return OK


def _add_attention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        type=bench_shape,
        action="append",
        required=True,
        metavar="BxLxHxD",
        help="the shape of q: batch, length, heads, head dim; repeatable",
    )
    parser.add_argument("--kv-heads", type=int, help="heads of k and v; default: as many as of q")
    parser.add_argument("--kv-len", type=int, help="length of k and v; default: as long as q")
    parser.add_argument(
        "--causal", action="store_true", help="a causal mask, aligned at the bottom right"
    )
    parser.add_argument(
        "--window",
        type=int,
        metavar="LEFT",
        help="how many keys before the diagonal one are visible",
    )
    parser.add_argument("--dtype", type=dtype_name, default="bfloat16", help="default: bfloat16")
    parser.set_defaults(cases=_attention_cases)


def _add_gemm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--m", type=sizes, required=True, metavar="M,...", help="rows of a and out")
    parser.add_argument(
        "--n", type=sizes, required=True, metavar="N,...", help="columns of b and out"
    )
    parser.add_argument(
        "--k", type=sizes, required=True, metavar="K,...", help="columns of a, rows of b"
    )
    add_product(parser)
    parser.set_defaults(cases=_gemm_cases)


def _attention_cases(options: argparse.Namespace) -> list[AttentionCase]:
    if options.dtype == "float32":
        raise ValueError("bench flash_attention: --dtype must be bfloat16 or float16")
    cases = []
    for batch, length, heads, head_dim in options.shape:
        kv_heads = heads if options.kv_heads is None else options.kv_heads
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"--kv-heads must divide the {heads} heads of q, got {kv_heads}")
        kv_length = length if options.kv_len is None else options.kv_len
        if kv_length < 1:
            raise ValueError(f"--kv-len must be a whole number from 1 on, got {kv_length}")
        if options.window is not None and options.window < 0:
            raise ValueError(f"--window must be a whole number from 0 on, got {options.window}")
        cases.append(
            AttentionCase(
                *(batch, length, heads, head_dim, kv_heads, kv_length),
                dtype=options.dtype,
                causal=options.causal,
                window=options.window,
            )
        )
    return cases


def _gemm_cases(options: argparse.Namespace) -> list[GemmCase]:
    kind = Kind.of(options.dtype, options.out_dtype, options.layout, options.precision)
    return [GemmCase(Shape(m, n, k), kind) for n in options.n for k in options.k for m in options.m]


def _print_report(name: str, peaks: dict[str, float], results: list[dict[str, Any]]) -> None:
    print_table(
        ["case", "dtype", "us", "TFLOP/s", "of peak", "TB/s", "of peak", "PyTorch us", "ratio"],
        [_row(result) for result in results],
    )
    known = f"peaks of the datasheet: {peaks}" if peaks else "its peaks are not listed here"
    print(f"\n{name}, {known}; ratio: PyTorch's time over Kiln's, above 1 Kiln is faster")
    for reason in dict.fromkeys(result["why_no_peer"] for result in results):
        if reason:
            print(f"{reason}: Kiln alone, its result unchecked")


def _row(result: dict[str, Any]) -> list[Any]:
    peer, share = result["peer"], result["share_of_peak"]
    return [
        result["case"],
        result["dtype"],
        f"{result['us']:.1f}",
        f"{result['tflops']:.1f}",
        _percent(share["tflops"]),
        f"{result['tb_per_s']:.2f}",
        _percent(share["tb_per_s"]),
        f"{peer['us']:.1f}" if peer else "-",
        _ratio(peer["ratio"]) if peer else "-",
    ]


def _ratio(ratio: float) -> Painted:
    return Painted(f"{ratio:.2f}", "good" if ratio >= 1 else "caution")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"
