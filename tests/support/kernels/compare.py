"""The gates: error per row, relative to the row's RMS, against float64.

A row passes when its largest error is at most twice that of the textbook computation in the same
dtype plus a small amount for the final rounding, and never above a fixed cap, or, in rows with an
element far beyond the others, what rounding that one to nearest may cost. A row whose truth is all
zero must be all zero. NaN never passes.
"""

import dataclasses
import math

import torch
from grid import on_gpu


@dataclasses.dataclass(frozen=True)
class Gate:
    small: float  # excused beside the textbook's error; in units of the row's RMS
    cap: float  # never exceeded, whatever the textbook does


# Rounding the largest element of a row moves it by about 4 RMS * 2^-9 (bf16) or 2^-12 (f16);
# rounding the softmax weights costs about as much again.
GATES = {
    torch.bfloat16: Gate(small=0.012, cap=0.04),
    torch.float16: Gate(small=0.002, cap=0.006),
    torch.float32: Gate(small=2e-4, cap=1e-2),
}
# Weights that are rounded to e4m3 are off by up to a sixteenth, each by its own amount: results of
# independent values by 0.02 to 0.03 of their RMS, and the largest of 128 by four times as much.
BYTE_WEIGHTS_GATE = Gate(small=0.04, cap=0.25)
# Sums kept in half lose bits with every step.
HALF_SUM_GATE = Gate(small=0.01, cap=0.10)


def f8_gate(dtype, precision):
    """Of 8-bit floats, whose sums tensor cores cut to 13 bits at every step of 32 of K: for a
    K-tile of 128, or, fast, for all of K."""
    more = 0.02 if precision == "fast" else 0.003
    return Gate(small=GATES[dtype].small + more, cap=GATES[dtype].cap + more)


SHORT_ROW = 8  # columns; the RMS of fewer says too little, so the whole tensor's is used


def check_rows(actual, expected, baseline, *, what, gate=None, excused=0.0):
    """Raises AssertionError: how many rows are wrong, where the worst is and by how much.

    excused: an error that is allowed beside the gate's, for all rows or for each."""
    assert actual.shape == expected.shape, (
        f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    )
    if actual.numel() == 0:
        return
    gate = gate or GATES[actual.dtype]
    numbers = torch.finfo(actual.dtype)
    rounding = numbers.eps / 2
    # Rows of almost nothing, as beside a sink that takes all weight: there is no smaller step, and
    # exponentials below the smallest normal fp32 are 0, by which values are multiplied.
    least = max(numbers.smallest_normal * numbers.eps, 8 * torch.finfo(torch.float32).tiny)
    actual, expected, baseline = (x.detach().double() for x in (actual, expected, baseline))
    rms = expected.square().mean(-1).sqrt()
    if expected.shape[-1] < SHORT_ROW:
        rms = expected.square().mean().sqrt().expand_as(rms)
    error = _row_error(actual, expected)
    cap = torch.maximum(gate.cap * rms, rounding * expected.abs().amax(-1))
    allowed = torch.minimum(2 * _row_error(baseline, expected) + gate.small * rms, cap)
    allowed = allowed + excused + least
    bad = ~(error <= allowed)
    if bad.any():
        raise AssertionError(_describe(actual, expected, error, allowed, rms, bad, what))


def check_quantized_rows(actual, expected, baseline, scale, gate, *, what):
    """Rows of e4m3 that were divided by `scale`: each element is off by at most half a step, beside
    what `gate` excuses in the row before that."""
    expected, baseline = expected.double(), baseline.double()
    excused = 2 * _row_error(baseline, expected) + gate.small * expected.square().mean(-1).sqrt()
    exact = (expected / scale).clamp(-448, 448)
    half_steps = (exact.abs() / 16).clamp_min(2**-10)
    error = (actual.double() - exact).abs() - half_steps
    bad = ~(error <= excused[..., None] / scale + 1e-9)
    if bad.any():
        where = _unravel(int(bad.flatten().int().argmax()), bad.shape)
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {where}: "
            f"{actual[where].float():.6g}, expected {exact[where]:.6g}"
        )


def _row_error(x, expected):
    return torch.nan_to_num((x - expected).abs(), nan=math.inf).amax(-1)


def _describe(actual, expected, error, allowed, rms, bad, what):
    excess = torch.where(bad, error / allowed.clamp_min(1e-300), torch.zeros_like(error))
    flat = int(torch.nan_to_num(excess, nan=math.inf).argmax())
    where = _unravel(flat, error.shape)
    column = int(torch.nan_to_num((actual - expected).abs(), nan=math.inf)[where].argmax())
    first = _unravel(int(bad.flatten().int().argmax()), error.shape)
    return (
        f"{what}: {int(bad.sum())} of {bad.numel()} rows are wrong, the first at {first}, the "
        f"worst at {where}: column {column} is {actual[where][column]:.6g}, expected "
        f"{expected[where][column]:.6g}; error {error[where]:.3g}, allowed "
        f"{allowed[where]:.3g}, RMS of the row {rms[where]:.3g}; NaN in "
        f"{int(torch.isnan(actual).any(-1).sum())} rows"
    )


def _unravel(flat, shape):
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


def tanh_error(softcap):
    """By how much a GPU's tanh may put the logits of a softcap off: 2^-16.4 of the largest on
    Hopper. Elsewhere, the emulated device included, tanh is as exact as an exponent."""
    hopper = on_gpu() and torch.cuda.get_device_capability() == (9, 0)
    return softcap * 2**-16.4 if hopper else 0.0


def check_lse(actual, expected, *, what, excused=0.0):
    """-inf must be -inf; the rest is close to float64 by the special-function unit's precision.

    excused: an error that is allowed beside that, for all values or for each."""
    assert actual.dtype == torch.float32, f"{what}: the lse is {actual.dtype}, expected float32"
    assert actual.shape == expected.shape, (
        f"{what}: the lse is {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    )
    actual, expected = actual.double(), expected.double()
    empty = torch.isinf(expected) & (expected < 0)
    close = (actual - expected).abs() <= 1e-4 + 1e-5 * expected.abs() + excused
    bad = ~torch.where(empty, actual == expected, close)
    if bad.any():
        where = _unravel(int(bad.flatten().int().argmax()), bad.shape)
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.numel()} lse values are wrong, the first at "
            f"(batch, head, row) {where}: {actual[where]:.7g}, expected {expected[where]:.7g}"
        )
