"""The operations of `kiln tune` share this: the file that they write, the loop and the flags."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import __version__, control
from ..files import errors_name
from ..json_file import read_json
from .output import Unavailable, add_json_flag
from .sizes import seconds
from .terminal import Progress

Case = TypeVar("Case")
Result = TypeVar("Result")
_SCHEMA = 1


class Table:
    """The table of one operation's measurements, and the entries of other operations that its file
    had before: these are kept if they were measured on the same kind of device."""

    def __init__(self, path: str, op: str, device: dict[str, Any]) -> None:
        self.path, self._op = path, op
        head = {
            "schema": _SCHEMA,
            "kiln": __version__,
            "device": device["name"],
            "arch": "sm_" + device["compute_capability"].replace(".", ""),
            "sm_count": device["sm_count"],
        }
        before = self._content_before(head)
        self._others = [entry for entry in before.get("entries", []) if _op_of(entry) != op]
        if self._others:
            count = len(self._others)
            print(f"{path} keeps its entries of other operations ({count})", file=sys.stderr)
        self.content: dict[str, Any] = {
            **(before if self._others else {}),
            **head,
            "entries": [*self._others],
        }

    @property
    def arch(self) -> str:
        """Such as "sm_90"."""
        return self.content["arch"]

    def add(self, entry: dict[str, Any] | None, **summary: Any) -> None:
        """Adds an entry, if there is one, replaces what is said of them all, and writes the file.
        A reader finds a complete table at any time, also after Ctrl-C."""
        if entry is not None:
            self.content["entries"].append({"op": self._op, **entry})
        self.content.update(summary)
        temporary = f"{self.path}.{os.getpid()}.tmp"
        try:
            with errors_name(self.path):
                with open(temporary, "w", encoding="utf-8") as file:
                    json.dump(self.content, file, indent=1)
                    file.write("\n")
                os.replace(temporary, self.path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def _content_before(self, head: dict[str, Any]) -> dict[str, Any]:
        try:
            content = read_json(self.path)
        except (OSError, ValueError):
            return {}
        same = ("schema", "arch", "sm_count")
        if not isinstance(content, dict) or any(content.get(key) != head[key] for key in same):
            return {}
        entries = content.get("entries")
        sound = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
        return content if sound else {}


def _op_of(entry: dict[str, Any]) -> Any:
    return entry.get("op", "gemm")  # earlier versions wrote entries of gemm alone, without an op


def measure_each(
    op: str,
    cases: Sequence[Case],
    measure: Callable[[Case], Result],
    gpu: Any,
    done: Callable[[list[tuple[Case, Result]]], str],
) -> list[tuple[Case, Result]]:
    """Measures the cases one after the other without a tuning table. `done` gets the results so far
    after each and returns what progress says of the last one."""
    results: list[tuple[Case, Result]] = []
    progress = Progress(len(cases))
    previous = control.set_tuning(None)  # the built-in choice is needed
    try:
        for case in cases:
            results.append((case, measure(case)))
            progress.step(len(results), done(results))
    except gpu.out_of_memory as error:
        raise Unavailable(
            f"tune {op}: {case} does not fit in the GPU's memory ({error}): leave it out"
        ) from None
    finally:
        progress.close()
        control.set_tuning(previous)
    return results


def over_best(ratios: Sequence[float]) -> dict[str, Any]:
    """The built-in choices' times over the best ones, which is what tuning can gain."""
    logs = [math.log(ratio) for ratio in ratios]
    return {"geometric_mean": math.exp(sum(logs) / len(logs)), "worst": max(ratios)}


def add_table_flags(parser: argparse.ArgumentParser) -> None:
    """--out, --seconds and --json."""
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="the file to which the table is written"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=0.3, help="how long each shape is measured; default: 0.3"
    )
    add_json_flag(parser)
