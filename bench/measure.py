"""Measures a batch of cells: every result checked, then all calls in turns, then the figures.

A peer that is absent, refuses or is wrong is left out by name; Kiln being wrong fails the cell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from cells import OURS, floors_us
from exact import Wrong, judge
from machine import gauge
from timing import summary, take_turns

REASON_LENGTH = 200


class Unavailable(Exception):
    """Why a peer cannot take part; the text is shown."""


@dataclasses.dataclass
class Contender:
    """A call on input set i; `view` brings its result into the truth's layout, untimed."""

    call: Callable[[int], Any]
    view: Callable[[Any], Any] = lambda result: result


@dataclasses.dataclass
class Entry:
    """One cell with its calls. Peers are made when their turn comes, as making one may fail."""

    cell: Any
    ours: Contender
    peers: dict[str, Callable[[], Contender]]
    truth: Callable[[int], Any]  # of input set i, in float32
    sets: int
    config: dict[str, Any] | None = None  # what Kiln chose
    limit: str | None = None  # the name in exact.LIMITS, where it is not the cell's dtype


def reason(error):
    """One line about an exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if not isinstance(error, (Unavailable, Wrong)):
        text = f"{type(error).__name__}: {text}"
    return text[:REASON_LENGTH]


def measure(entries, seconds, ceilings, turns=take_turns, clock=lambda: gauge().sample()):
    """One result for each entry; all that passed their check take turns with each other."""
    results = [
        {**_description(e.cell, ceilings), "config": e.config, "input_sets": e.sets}
        for e in entries
    ]
    calls, clocks = {}, []
    kept: dict[str, Any] = {}
    for index, (entry, result) in enumerate(zip(entries, results)):
        for name, call in _checked(entry, result, kept).items():
            calls[index, name] = call
    if calls:
        sets = min(entry.sets for entry in entries)
        times = turns(calls, seconds, sets=sets, halfway=lambda: clocks.append(clock()))
        for (index, name), samples in times.items():
            results[index]["times"][name] = summary(samples)
            results[index]["clocks"] = clocks[0] if clocks else None
    for entry, result in zip(entries, results):
        if entry.cell.name in kept:
            timed, checked = kept[entry.cell.name]
            if not torch.equal(entry.ours.view(timed), checked):
                result["failed"] = "the result changed while it was timed"
        _add_figures(result)
    return results


def failure(cell, ceilings, error):
    """The result of a cell that could not even be prepared."""
    return {**_description(cell, ceilings), "failed": reason(error)}


def _description(cell, ceilings):
    return {
        "name": cell.name,
        "group": cell.group,
        "label": cell.label,
        "dtype": cell.dtype,
        "shape": dataclasses.asdict(cell),
        "flops": cell.flops,
        "bytes": cell.bytes,
        "stream_bytes": cell.stream_bytes,
        "floors_us": floors_us(cell, ceilings),
        "errors": {},
        "left_out": {},
        "failed": None,
        "times": {},
        "ratios": {},
        "clocks": None,
    }


def _checked(entry, result, kept):
    """The calls that gave the truth. Kiln does on every input set, peers on the first.

    `kept` gets Kiln's first result and a copy of its view: the timed calls must leave the same bits
    in it.
    """
    truth, limit = None, entry.limit or entry.cell.dtype
    try:
        for index in reversed(range(entry.sets)):
            truth = None  # before the next is made: it may take gigabytes
            truth = entry.truth(index)
            made = entry.ours.call(index)
            output = entry.ours.view(made)
            error = judge(output, truth, limit)
            worst = result["errors"].get(OURS, error)
            result["errors"][OURS] = {key: max(error[key], worst[key]) for key in error}
    except Exception as error:
        result["failed"] = reason(error)
        return {}
    kept[entry.cell.name] = made, output.clone()
    calls = {OURS: entry.ours.call}
    for name, make in entry.peers.items():
        try:
            contender = make()
            output = contender.view(contender.call(0))
            result["errors"][name] = judge(output, truth, limit)
        except Exception as error:
            result["left_out"][name] = reason(error)
            continue
        calls[name] = contender.call
    return calls


def _add_figures(result):
    """Rates, ratios and the distance from the larger floor, once the times are known."""
    if OURS not in result["times"]:
        return
    micros = result["times"][OURS]["median_us"]
    result["tflops"] = result["flops"] / micros / 1e6
    result["gb_per_s"] = result["stream_bytes"] / micros / 1e3
    result["times_floor"] = micros / max(result["floors_us"].values())
    result["ratios"] = {
        name: times["median_us"] / micros for name, times in result["times"].items() if name != OURS
    }
