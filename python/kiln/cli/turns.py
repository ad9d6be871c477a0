"""Measures calls on a GPU in turns, and checks that they give the same result."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from .. import Error

Name = TypeVar("Name", bound=Hashable)
# The distance of 1 from the next number of a dtype.
EPSILON = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-23}


def take_turns(
    calls: Mapping[Name, Callable[[], object]],
    gpu: Any,
    seconds: float,
    always: Name | None = None,
    *,
    prepare: Callable[[Name], object] = lambda name: None,
    trial: int = 3,
    slack: float = 1.3,
    least: int = 7,
    most: int = 1000,
    now: Callable[[], float] = time.perf_counter,
) -> dict[Name, float]:
    """The median microseconds of each call, L2 flushed before each.

    Taking turns makes clock drift hit all alike; the order is shuffled, so that none always follows
    the same neighbour. After `trial` turns those slower than `slack` times the fastest are out, but
    for `always`. `seconds` bounds the whole, except that `least` turns are taken. `prepare` is
    called before each call, and its time is not counted.
    """
    samples: dict[Name, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    start = now()
    for turn in range(most):
        if turn >= least and now() - start > seconds:
            break
        shuffle(order)
        events = {}
        for name in order:
            prepare(name)  # before the flush, during which the host gets ahead of the device
            gpu.flush()
            before = gpu.event()
            calls[name]()
            events[name] = before, gpu.event()
        gpu.synchronize()
        for name, (before, after) in events.items():
            samples[name].append(gpu.microseconds(before, after))
        if turn + 1 == trial:
            medians = {name: statistics.median(samples[name]) for name in order}
            limit = slack * min(medians.values())
            order = [name for name in order if medians[name] <= limit or name == always]
    return {name: statistics.median(samples[name]) for name in order}


def check_results(
    subject: str,
    calls: Mapping[Name, Callable[[], object]],
    out: Any,
    gpu: Any,
    limit_of: Callable[[Any], Any],
    prepare: Callable[[Name], object] = lambda name: None,
) -> None:
    """Checks that every call writes the same `out` as the first one, except for errors within
    `limit_of` the sizes of its elements. Raises kiln.Error, which `subject` begins."""
    expected = None
    for name, call in calls.items():
        out.fill_(float("nan")) if hasattr(out, "fill_") else out.fill(float("nan"))
        prepare(name)
        call()
        values = gpu.as_float(out)
        if expected is None:
            first, expected = name, values
            limit = limit_of(abs(expected))
        # Written so that a NaN does not match.
        if not bool((abs(values - expected) <= limit).all()):
            raise Error(
                f"{subject}: the results of tiles {name} and {first} differ; "
                "please report this, with the output of `kiln doctor`"
            )
