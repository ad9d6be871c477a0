#!/usr/bin/env python3
"""Many processes on one cold cache, and processes that are killed while they fill one.

bench/cache_storm.py [--processes 16] [--keys 8] [--repeats 3] [--rounds 200] [--killed 4]

Prints JSON: how long one process takes to compile some kernels and how long many at once, with how
many compiles; then, over rounds of killed processes, what was found to be wrong. Needs NVRTC and no
GPU. Processes are forked from one that has imported Kiln, so that starting Python does not count.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

import kiln
from kiln import _core

ARCH = "sm_80"
HOUR = 3600


def specs_of(keys: int) -> list[dict]:
    """One small kernel for each key."""
    row = {"op": "gemm", "dtype": "bfloat16", "block_m": 32, "stages": 4}
    return [{**row, "epilogue": f"acc + {i}.5f"} for i in range(keys)]


def start(work: Callable[[], object], pipe: int | None = None) -> int:
    """Runs `work` in a forked process, which writes the result to the pipe as a line of JSON."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        result = work()
        if pipe is not None:
            os.write(pipe, json.dumps(result).encode() + b"\n")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def results_of(works: list[Callable[[], object]]) -> list:
    """The results of some work, each in a process of its own, all at once. A process that fails
    has none."""
    reader, writer = os.pipe()
    children = [start(work, writer) for work in works]
    os.close(writer)
    with os.fdopen(reader) as lines:
        results = [json.loads(line) for line in lines]
    for child in children:
        os.waitpid(child, 0)
    return results


def fill(specs: list[dict]) -> dict[str, int]:
    """Compiles what the cache lacks, one kernel after the other, as calls do."""
    report = kiln.prewarm(specs, ARCH, jobs=1)
    return {"compiled": report["compiled"], "failed": len(report["failed"])}


def timed(folder: pathlib.Path, processes: int, specs: list[dict]) -> dict:
    """A cold cache that some processes fill."""
    shutil.rmtree(folder, ignore_errors=True)
    before, start_time = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    reports = results_of([lambda: fill(specs)] * processes)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.monotonic() - start_time,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "compiles": sum(report["compiled"] for report in reports),
        "failures": processes - sum(report["failed"] == 0 for report in reports),
    }


def fastest(folder: pathlib.Path, processes: int, specs: list[dict], repeats: int) -> dict:
    """The run of least time, with the failures of all."""
    runs = [timed(folder, processes, specs) for _ in range(repeats)]
    best = min(runs, key=lambda run: run["seconds"])
    return {**best, "failures": sum(run["failures"] for run in runs)}


def kill_round(
    folder: pathlib.Path, killed: int, specs: list[dict], longest: float
) -> tuple[int, list[str]]:
    """Kills processes at random moments while they fill a cold cache: how many had not ended yet,
    and what is wrong afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    # One process is killed in each part of the time, which a busier machine may have taken.
    ends = [random.uniform(part, part + 1) * longest / killed for part in range(killed)]
    orders = [random.sample(specs, len(specs)) for _ in ends]
    begin = time.monotonic()
    children = [start(functools.partial(fill, order)) for order in orders]
    for end, child in zip(ends, random.sample(children, len(children))):
        time.sleep(max(0.0, begin + end - time.monotonic()))
        os.kill(child, signal.SIGKILL)
    died = sum(os.WIFSIGNALED(os.waitpid(child, 0)[1]) for child in children)
    return died, [
        *faults_of("after the kills", results_of([verify]), None),
        *faults_of("of another process", results_of([lambda: fill(specs)]), None),
        *faults_of("then", results_of([verify]), len(specs)),
        *leftovers_of(folder),
    ]


def verify() -> dict:
    """The report of `kiln cache verify`."""
    return json.loads(_core.cache_verify())


def prune() -> str:
    """Prunes without limits, which removes what killed processes left."""
    return _core.cache_prune(max_bytes=None, unused_since=0, older_than_nvrtc="", dry_run=False)


def faults_of(when: str, results: list, entries: int | None) -> list[str]:
    """The faults of a report that must be clean."""
    if len(results) != 1:
        return [f"{when}: the process failed"]
    (report,) = results
    if report.get("faults") or report.get("failed"):
        return [f"{when}: {report}"]
    if entries is not None and report["checked"] != entries:
        return [f"{when}: {report['checked']} entries in the place of {entries}"]
    return []


def leftovers_of(folder: pathlib.Path) -> list[str]:
    """The files of killed processes that `kiln cache prune` leaves although they are old enough."""
    old = time.time() - 2 * HOUR
    for path in folder.rglob("*"):
        if path.suffix != ".cubin":
            os.utime(path, (old, old))
    results_of([prune])
    left = [*folder.rglob(".tmp-*"), *folder.glob("locks/*")]
    return [f"prune left {path.relative_to(folder)}" for path in left]


def main() -> int:
    """Measures, prints, and exits with 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default, meaning in (
        ("processes", 16, "that fill a cold cache at once"),
        ("keys", 8, "kernels that each of them needs"),
        ("repeats", 3, "of both measurements, of which the fastest counts"),
        ("rounds", 200, "of killed processes"),
        ("killed", 4, "processes in each of these rounds"),
        ("killed-keys", 2, "kernels that each of these needs"),
        ("seed", 0, "of the moments"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=meaning)
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="kiln-storm-") as root:
        folder = pathlib.Path(root) / "cache"
        os.environ.update(KILN_CACHE_DIR=str(folder), KILN_CACHE_PATH="", KILN_CACHE_MAX_SIZE="")
        specs = specs_of(options.keys)
        one = fastest(folder, 1, specs, options.repeats)
        many = fastest(folder, options.processes, specs, options.repeats)
        few = specs_of(options.killed_keys)
        longest = timed(folder, options.killed, few)["seconds"] if options.rounds else 0.0
        died, faults = 0, []
        for number in range(options.rounds):
            more, found = kill_round(folder, options.killed, few, longest)
            died += more
            faults += [f"round {number}, {fault}" for fault in found]
    report = {
        "one": one,
        "many": {"processes": options.processes, **many},
        "ratio": many["seconds"] / one["seconds"],
        "cpu_ratio": many["cpu_seconds"] / one["cpu_seconds"],
        "rounds": options.rounds,
        "killed": died,
        "faults": faults,
    }
    json.dump(report, sys.stdout, indent=1)
    print()
    return 1 if faults or one["failures"] or many["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
