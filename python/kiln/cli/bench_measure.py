"""Checks and measures the cases of `kiln bench`, and compares them with the device's peaks."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from .. import Error
from .bench_cases import Calls
from .turns import EPSILON, take_turns

_PEAKS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "peaks.json")
_EPSILON = {**EPSILON, "float32": EPSILON["float16"]}  # float32 is multiplied as tf32


def peaks_of(device_name: str) -> dict[str, float]:
    """A device's dense TFLOP/s and TB/s by its datasheet; empty if the device is not listed."""
    with open(_PEAKS, encoding="utf-8") as file:
        return json.load(file).get(device_name.removeprefix("NVIDIA "), {})


def measure(case: Any, gpu: Any, seconds: float, peaks: dict[str, float]) -> dict[str, Any]:
    """Measures one case: medians of calls that take turns. Raises kiln.Error for a wrong result."""
    calls = without_refusals(case.prepare(gpu), gpu)
    checked = check_result(case, calls, gpu)
    timed = {"kiln": calls.kiln, **({"peer": calls.peer} if calls.peer else {})}
    times = take_turns(timed, gpu, seconds, always="peer", slack=float("inf"))
    return summary(case, calls, times, checked, peaks)


def without_refusals(calls: Calls, gpu: Any) -> Calls:
    """Removes a peer that refuses the call, as older versions do, and keeps its reason."""
    if calls.peer is None:
        return calls
    try:
        calls.peer()
    except gpu.out_of_memory:
        raise
    except (RuntimeError, TypeError, ImportError) as error:
        what = str(error).strip() or type(error).__name__
        reason = f"{calls.peer_name} refuses: {what.splitlines()[0]}"
        return dataclasses.replace(calls, peer=None, why_no_peer=reason)
    return calls


def check_result(case: Any, calls: Calls, gpu: Any) -> bool:
    """Compiles, warms up and compares; returns whether there was a result to compare with."""
    result = calls.kiln()
    if calls.peer is None:
        return False
    ours = gpu.as_float(result)
    theirs = gpu.as_float(calls.peer())
    limit = 2 * _EPSILON[case.dtype] * (abs(theirs) + abs(theirs).max() / 4)
    if not bool((abs(ours - theirs) <= limit).all()):  # written so that a NaN does not match
        raise Error(
            f"bench: {case}: Kiln's result and that of {calls.peer_name} differ; please report "
            "this, with the output of `kiln doctor`"
        )
    return True


def summary(
    case: Any, calls: Calls, times: dict[Any, float], checked: bool, peaks: dict[str, float]
) -> dict[str, Any]:
    """The measured times as rates and as shares of the device's peaks."""
    us = times["kiln"]
    rate = {"tflops": case.flops() / us * 1e-6, "tb_per_s": case.bytes() / us * 1e-6}
    kind = {"float32": "tf32", "bfloat16": "half", "float16": "half"}.get(case.dtype, "float8")
    peak = {"tflops": peaks.get(kind), "tb_per_s": peaks.get("tb_per_s")}
    peer = None
    if calls.peer is not None:
        peer = {"name": calls.peer_name, "us": times["peer"], "ratio": times["peer"] / us}
    return {
        "op": case.op,
        "case": str(case),
        "dtype": case.dtype,
        "flops": case.flops(),
        "bytes": case.bytes(),
        "us": us,
        **rate,
        "share_of_peak": {
            name: rate[name] / limit if limit else None for name, limit in peak.items()
        },
        "peer": peer,
        "why_no_peer": calls.why_no_peer,
        "checked": checked,
    }
