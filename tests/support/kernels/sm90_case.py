"""Tests of the sm_90a base (templates/sm90) as data: a Case is a CUDA source of sm90/ with its
constants, the arguments, and what must be in their arrays afterwards. The same case runs on the
emulated device and on a GPU."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
from collections.abc import Callable

import numpy as np
import nvrtc

SOURCES = pathlib.Path(__file__).parent / "sm90"
ENTRY = "kernel"
EMULATED, HARDWARE = ("compute_90a", "PTX"), ("sm_90a", "CUBIN")  # target, and what comes out
# Which of the reports it is, where threads meet too early, is the schedule's choice.
UNORDERED = "race on shared memory|read of uninitialised|barrier misuse|deadlock"
WRONG_RESULTS = "wrong results"


@dataclasses.dataclass(frozen=True, eq=False)
class Boxes:
    """A parameter that is a tensor map of `array`, or of what `view` shows of it."""

    array: np.ndarray
    box: tuple  # in the array's order, as of kiln.TensorMap
    swizzle: int = 128  # bytes
    view: Callable = lambda array: array


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    name: str
    source: str
    arguments: list  # arrays, Boxes, NumPy scalars
    expected: dict  # by the argument's index; all other arrays must stay as they were
    block: int = 128
    grid: int = 1
    cluster: int = 1
    shared: int = 0
    fault: str | None = None  # pattern of the emulator's report, or WRONG_RESULTS

    def __repr__(self):
        return self.name


def render(name, constants, *replacements):
    """The text of sm90/<name>.cu behind its constants, with (old, new) replaced in it."""
    text = (SOURCES / f"{name}.cu").read_text()
    for old, new in replacements:
        if old not in text:
            raise ValueError(f"{name}.cu has no {old!r}")
        text = text.replace(old, new)
    lines = [
        value if key == "text" else f"constexpr {kind_of(value)} {key} = {literal(value)};"
        for key, value in constants.items()
    ]
    return "\n".join([*lines, text])


def kind_of(value):
    return "bool" if isinstance(value, bool) else "int"


def literal(value):
    return str(value).lower()


def broken(case, what, fault, *replacements):
    """The case with a mistake in its source, which the emulated device must find."""
    source = case.source
    for old, new in replacements:
        if old not in source:
            raise ValueError(f"{case.name} has no {old!r}")
        source = source.replace(old, new)
    name = f"{case.name}.{what}"
    return dataclasses.replace(case, name=name, source=source, fault=fault)


def compile_chosen(items, target, what):
    """The sources of all cases that pytest has collected, many at a time."""
    chosen = [item.callspec.params.get("case") for item in items if hasattr(item, "callspec")]
    cases = [case for case in chosen if isinstance(case, Case)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        sources = {case.source for case in cases}
        list(threads.map(lambda source: nvrtc.compiled(source, target, what), sources))


def own(argument):
    """A copy for one run."""
    if isinstance(argument, Boxes):
        return dataclasses.replace(argument, array=argument.array.copy())
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def run_emulated(case, schedule="late", seed=0):
    import kiln

    ptx, _ = nvrtc.compiled(case.source, *EMULATED)
    arguments = [own(argument) for argument in case.arguments]
    kiln.emulate(
        ptx,
        entry=ENTRY,
        grid=case.grid,
        block=case.block,
        cluster=case.cluster,
        arguments=[
            kiln.TensorMap(a.view(a.array), a.box, swizzle=a.swizzle) if isinstance(a, Boxes) else a
            for a in arguments
        ],
        shared_bytes=case.shared,
        arch="sm_90a",
        schedule=schedule,
        seed=seed,
        step_limit=10_000_000,
    )
    return arguments


def run_on_gpu(case):
    from cuda_driver import TensorMap, launch

    cubin, _ = nvrtc.compiled(case.source, *HARDWARE)
    arguments = [own(argument) for argument in case.arguments]
    launch(
        cubin,
        ENTRY,
        (case.grid, 1, 1),
        (case.block, 1, 1),
        (case.cluster, 1, 1),
        [
            TensorMap(a.array, a.view(a.array), a.box, a.swizzle) if isinstance(a, Boxes) else a
            for a in arguments
        ],
        case.shared,
    )
    return arguments


def array_of(argument):
    return argument.array if isinstance(argument, Boxes) else argument


def check(case, arguments):
    """Asserts that every array holds what it must, to the bit but for the sign of zeros."""
    for index, argument in enumerate(arguments):
        got = array_of(argument)
        if not isinstance(got, np.ndarray):
            continue
        want = case.expected.get(index, array_of(case.arguments[index]))
        assert got.shape == want.shape and got.dtype == want.dtype, (case.name, index)
        bad = np.argwhere((got != want) & ~((got != got) & (want != want)))
        lines = [
            f"argument {index}{list(map(int, at))} is {got[tuple(at)]}, expected {want[tuple(at)]}"
            for at in bad[:6]
        ]
        assert not lines, "\n".join([f"{case.name}: {len(bad)} of {got.size} differ", *lines])


def all_cases():
    """Every case, and behind them those with a mistake."""
    import sm90_boxes
    import sm90_products
    import sm90_rings
    import sm90_roles

    modules = (sm90_products, sm90_boxes, sm90_rings, sm90_roles)
    cases = [case for module in modules for case in module.CASES]
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        raise ValueError(f"names of cases repeat: {sorted(names)}")
    return cases
