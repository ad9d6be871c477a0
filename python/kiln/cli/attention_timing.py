"""Checks the rows of the sm_90a attention table on one problem and measures them in turns.

A call has no argument that names a row. Each row is therefore made the choice by a tuning table
with one entry, which is set before the call.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from .. import control, jit
from .bench_cases import AttentionCase
from .turns import EPSILON, check_results, take_turns

_PATH = "sm_90a"
_SEQUENCES = "as sequences"  # of one length: tables do not name the rows of such calls
_TILE = ("block_q", "block_kv", "stages")
_ROW_FIELDS = (*_TILE, "warps", "splits")  # of a spec; the others say which rows there are
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # the counts of splits that are tried
# Splits fill multiprocessors that would be idle. So many rounds of thread blocks leave few idle,
# and more of them only cost memory: each split of a query tile writes a partial result.
_MOST_ROUNDS = 16


@dataclasses.dataclass(frozen=True)
class Tile:
    """A row of a config table, and how many thread blocks share the keys of its tiles."""

    path: str  # "sm_90a", "portable" or, where a call is computed as sequences, _SEQUENCES
    block_q: int
    block_kv: int
    stages: int
    splits: int = 1

    @classmethod
    def of(cls, explained: Mapping[str, Any]) -> Tile:
        """The tile that kiln.explain names."""
        spec = explained["spec"]
        return cls(
            explained["path"] if spec["storage"] == "dense" else _SEQUENCES,
            spec["block_q"],
            spec["block_kv"],
            spec["stages"],
            explained["splits"],
        )

    def __str__(self) -> str:
        text = f"{self.block_q}x{self.block_kv}x{self.stages}"
        if self.splits > 1:
            text += f" splits {self.splits}"
        return text if self.path == _PATH else f"{text} {self.path}"

    def config(self) -> dict[str, int]:
        """The field `config` of a tuning entry."""
        config = {name: getattr(self, name) for name in _TILE}
        return {**config, "splits": self.splits} if self.splits > 1 else config


@dataclasses.dataclass(frozen=True)
class Measured:
    """The microseconds of every tile, and the tile that is chosen without a table."""

    times: dict[Tile, float]
    builtin: Tile

    @property
    def best(self) -> Tile:
        """The fastest tile."""
        return min(self.times, key=self.times.__getitem__)

    @property
    def ratio(self) -> float:
        """The time of the built-in choice over the best time."""
        return self.times[self.builtin] / self.times[self.best]


def entry_of(case: AttentionCase, tile: Tile) -> dict[str, Any]:
    """The fields of a tuning entry that Kiln reads."""
    mask: dict[str, Any] = {"mask": "causal" if case.causal else "none"}
    if case.window is not None:
        mask = {"mask": "window", "keys": min(case.window + 1, case.kv_length)}
    return {
        "dtype": case.dtype,
        "head_dim": case.head_dim,
        "head_dim_v": case.value_dim,
        **mask,
        "batch": case.batch,
        "heads": case.heads,
        "heads_kv": case.kv_heads,
        "len_q": case.length,
        "len_kv": case.kv_length,
        "config": tile.config(),
    }


class _Choices:
    """A folder with a tuning table for each tile, of which one is in force at a time."""

    def __init__(self, case: AttentionCase, device: Mapping[str, Any], folder: str) -> None:
        self._case, self._device, self._folder = case, device, folder
        self._paths: dict[Tile, str] = {}

    def take(self, tile: Tile) -> None:
        """Makes the tile the one that calls of the case take."""
        if tile not in self._paths:
            path = os.path.join(self._folder, f"{len(self._paths)}.json")
            entry = {"op": self._case.op, **entry_of(self._case, tile)}
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**self._device, "entries": [entry]}, file)
            self._paths[tile] = path
        control.set_tuning(self._paths[tile] if tile.path == _PATH else None)


def measure(case: AttentionCase, gpu: Any, seconds: float, device: Mapping[str, Any]) -> Measured:
    """Compiles, checks and times every row that can serve the case, and rows whose thread blocks
    share keys with several counts of them. `device`: the head of a table. Raises kiln.Error for a
    wrong result, and ValueError where no row serves the case."""
    q, k, v, out = case.tensors(gpu)
    options = case.options()

    def call() -> object:
        return jit.flash_attention(q, k, v, out=out, **options)

    def explain() -> dict[str, Any]:
        return control.explain(case.op, q, k, v, out=out, **options)

    with tempfile.TemporaryDirectory(prefix="kiln-tune-") as folder:
        choices = _Choices(case, device, folder)
        try:
            control.set_tuning(None)
            explained = explain()
            builtin = Tile.of(explained)
            tiles = []
            for tile in rows_of(explained["spec"], device["arch"]):
                if tile.splits > 1 and rounds_of(case, tile, device) > _MOST_ROUNDS:
                    continue
                choices.take(tile)
                if Tile.of(explain()) == tile:  # some counts of splits are more than the keys allow
                    tiles.append(tile)
            if not tiles:
                raise ValueError(
                    f"tune attention: no row of the {_PATH} table serves {case}; leave it out, or "
                    "give it more than 64 query rows for each KV head"
                )
            calls = dict.fromkeys(dict.fromkeys([*tiles, builtin]), call)
            limit = 2 * EPSILON[case.dtype]
            check_results(
                f"tune attention: {case}",
                calls,
                out,
                gpu,
                lambda size: limit * (size + size.max() / 4),
                choices.take,
            )
            times = take_turns(calls, gpu, seconds, slack=float("inf"), prepare=choices.take)
        finally:
            control.set_tuning(None)
    return Measured(times, builtin)


def rounds_of(case: AttentionCase, tile: Tile, device: Mapping[str, Any]) -> float:
    """How many thread blocks each multiprocessor of the device gets."""
    query_tiles = case.batch * case.heads * math.ceil(case.length / tile.block_q)
    return query_tiles * tile.splits / device["sm_count"]


def rows_of(spec: Mapping[str, Any], arch: str) -> Iterable[Tile]:
    """Compiles the rows of the sm_90a table among which calls of a spec's properties choose, and
    returns them, those with splits once for each count of splits."""
    properties = {name: value for name, value in spec.items() if name not in _ROW_FIELDS}
    properties["storage"] = "dense"
    control.prewarm(properties, arch)  # several at a time, which inspect does not do
    tiles = []
    for kernel in control.inspect(properties, arch):
        if kernel["path"] == _PATH and kernel["spec"]["storage"] == "dense":
            counts = _SPLITS if kernel["spec"]["splits"] else (1,)
            tiles += [Tile.of({**kernel, "splits": count}) for count in counts]
    return tiles
