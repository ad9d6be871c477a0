"""What the benchmarks share: interleaved device times, host times, tables and result files."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import time

import torch

FLUSH_BYTES = 256 << 20  # more than any GPU's L2


def device_times(calls, seconds=0.4, least=5, most=50):
    """Median milliseconds of each call by events, the calls taking turns, L2 flushed before each.

    Taking turns makes clock drift hit all alike, so that ratios hold. `seconds` bounds the whole.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    samples = {name: [] for name in calls}
    start = time.perf_counter()
    for turn in range(most):
        if turn >= least and time.perf_counter() - start > seconds:
            break
        for name, call in calls.items():
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            before.record()
            call()
            after.record()
            after.synchronize()
            samples[name].append(before.elapsed_time(after))
    return {name: statistics.median(times) for name, times in samples.items()}


def host_times(calls, rounds=60, loops=100):
    """Median microseconds of host time a call, the calls taking turns, the device never waited for.

    `loops` stays below the length of the launch queue, so that a call never waits for the device.
    """
    for call in calls.values():
        for _ in range(20):
            call()
    torch.cuda.synchronize()
    samples = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(loops):
                call()
            samples[name].append((time.perf_counter() - start) / loops * 1e6)
            torch.cuda.synchronize()
    return {name: statistics.median(times) for name, times in samples.items()}


def relative_error(actual, expected):
    """Norm of the difference over the norm; NaN stays NaN, so that no comparison passes."""
    actual, expected = actual.double(), expected.double()
    return ((actual - expected).norm() / expected.norm()).item()


def table(headers, rows):
    """Aligned columns; the first one to the left."""
    cells = [list(map(str, headers))] + [[_cell(x) for x in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = []
    for row in cells:
        first = row[0].ljust(widths[0])
        lines.append("  ".join([first, *(x.rjust(w) for x, w in zip(row[1:], widths[1:]))]))
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def _cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def save(name, results):
    """Writes `name`.json to $OUT, or to bench/results where that is not set; returns the path."""
    folder = pathlib.Path(os.environ.get("OUT") or pathlib.Path(__file__).parent / "results")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(results, indent=1))
    return path


def machine():
    """One line that names what was measured."""
    if not torch.cuda.is_available():
        return f"no GPU, PyTorch {torch.__version__}"
    properties = torch.cuda.get_device_properties(0)
    return (
        f"{properties.name}, {properties.multi_processor_count} SMs, "
        f"CUDA {torch.version.cuda}, PyTorch {torch.__version__}"
    )
