#!/usr/bin/env python3
"""Measures Kiln beside its peers, interleaved in one process, every result checked first.

    bench/run.py --suite all --short
    bench/run.py --suite attention --filter "D128 causal"

Writes one JSON file for each suite and prints tables; ratios are a peer's time over ours. Exits
with 1 where a result of Kiln was wrong or refused, with 4 where the machine lacks something.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pathlib
import sys
import time
import traceback

import grids

ROOT = pathlib.Path(__file__).parents[1]
SUITES = (
    "attention", "decode", "serving", "gemm", "window", "variant", "epilogue", "norm", "merge",
    "append", "quantize", "moe", "groups", "pdl", "overhead", "compile",
)  # fmt: skip
SECONDS = {False: 0.5, True: 0.25}  # a batch's timing, by --short
# The modules of the suites of cells, where it is not attention_suite.
MODULES = {
    "gemm": "gemm_suite", "epilogue": "gemm_suite", "norm": "norm_suite", "merge": "merge_suite",
    "append": "append_suite", "serving": "serving_suite", "variant": "variant_suite",
    "quantize": "quantize_suite", "moe": "moe_suite", "groups": "group_suite",
    "pdl": "pdl_suite",
}  # fmt: skip
OK, CHECK_FAILED, USAGE, ENVIRONMENT = 0, 1, 2, 4


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog=f"exit status: {OK} ok, {CHECK_FAILED} a result was wrong, {USAGE} usage, "
        f"{ENVIRONMENT} the machine lacks something",
    )
    parser.add_argument("--suite", choices=(*SUITES, "all"), required=True)
    parser.add_argument("--short", action="store_true", help="few cells; all suites in 3 minutes")
    parser.add_argument("--filter", default="", metavar="TEXT", help="cells whose name holds TEXT")
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build" / "bench", metavar="DIR",
        help="folder of the JSON files (default build/bench)",
    )  # fmt: skip
    return parser.parse_args(arguments)


def lacking(suites):
    """One sentence about what the machine lacks for these suites, or None."""
    if importlib.util.find_spec("kiln") is None:
        return "bench/run.py needs the package kiln: `make setup`, or PYTHONPATH where it is built."
    if list(suites) == ["compile"]:
        return None
    alone = "only --suite compile runs without."
    if importlib.util.find_spec("torch") is None:
        return f"bench/run.py needs PyTorch and a CUDA GPU, and PyTorch is not installed; {alone}"
    import torch

    if not torch.cuda.is_available():
        finds = f"PyTorch {torch.__version__} finds none"
        return f"bench/run.py needs a CUDA GPU that PyTorch can use, and {finds}; {alone}"
    return None


class Progress:
    """Cell k of n, on stderr: one line that is rewritten on a terminal, else a line each."""

    def __init__(self, suite, count):
        self._suite, self._count, self._done = suite, count, 0
        self._start = time.perf_counter()

    def __call__(self, batch):
        self._done += len(batch)
        name = batch[0].name + (f" and {len(batch) - 1} more" if len(batch) > 1 else "")
        seconds = time.perf_counter() - self._start
        text = f"{self._suite} {self._done}/{self._count}, {seconds:.0f} s: {name}"
        self._write(text)

    def _write(self, text):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{text}")
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def finish(self):
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")


def run_cells(suite, options, ceilings):
    """The results of a suite of cells."""
    import torch
    from measure import failure, measure

    module = importlib.import_module(MODULES.get(suite, "attention_suite"))
    batches = grids.grid(suite, options.short, options.filter)
    progress = Progress(suite, sum(map(len, batches)))
    results = []
    for batch in batches:
        progress(batch)
        try:
            entries = module.entries(batch, options.short)
            results += measure(entries, SECONDS[options.short], ceilings)
        except Exception as error:  # one shape's trouble is not the others'
            results += [failure(cell, ceilings, error) for cell in batch]
        entries = None
        torch.cuda.empty_cache()
    progress.finish()
    if suite == "window":
        module.compare_windows(results)
    if suite == "epilogue":
        module.compare_epilogues(results)
    if suite in ("variant", "pdl"):
        module.compare(results)
    return results


def run_suite(suite, options, header):
    """The document of a suite, its text, and whether all was well."""
    import report

    start = time.perf_counter()
    document = {**header, "suite": suite}
    if suite in grids.GRIDS:
        results = run_cells(suite, options, header["ceilings"])
        document["cells"], document["groups"] = results, report.groups(results)
        parts = [report.cell_table(suite, results), "\n".join(report.exceptions(results))]
        if document["groups"]:
            parts.append(report.group_table(results))
        well = not any(result["failed"] for result in results)
    elif suite == "overhead":
        import host_suite

        document.update(host_suite.measure(options.short))
        parts = [report.host_table(document)]
        parts += [f"left out {name}: {why}" for name, why in document["left_out"].items()]
        well = True
    else:
        import compile_time

        document.update(compile_time.measure())
        parts, well = [compile_time.describe(document)], True
    document["seconds"] = time.perf_counter() - start
    return document, "\n\n".join(part for part in parts if part), well


def header_of(options, suites):
    """What every file opens with."""
    import machine
    import report

    header = {
        "schema": report.SCHEMA,
        "mode": "short" if options.short else "full",
        "filter": options.filter,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.machine(),
        "versions": machine.versions(),
    }
    if suites != ["compile"]:
        header["limits"] = machine.gauge().limits()
        header["ceilings"] = machine.ceilings()
    return header


def describe(header):
    lines = [header["machine"]]
    lines.append(", ".join(f"{name} {version}" for name, version in header["versions"].items()))
    if "ceilings" in header:
        rates = [f"copy {header['ceilings']['bytes_per_s'] / 1e12:.2f} TB/s"]
        for name, rate in header["ceilings"]["flops_per_s"].items():
            rates.append(f"{name} product {rate / 1e12:.0f} TFLOP/s")
        lines.append("measured ceilings: " + ", ".join(rates))
    return "\n".join(lines)


def chosen_suites(options):
    suites = list(SUITES) if options.suite == "all" else [options.suite]
    if not options.filter:
        return suites
    return [s for s in suites if s in grids.GRIDS and grids.grid(s, options.short, options.filter)]


def measure_all(suites, options):
    import report

    header = header_of(options, suites)
    print(describe(header), flush=True)
    failed = []
    for suite in suites:
        try:
            document, text, well = run_suite(suite, options, header)
        except Exception:  # the other suites' figures are worth having
            traceback.print_exc()
            failed.append(suite)
            continue
        path = report.save(options.out, suite, document)
        print(f"\n{text}\n{suite}: {document['seconds']:.0f} s, written to {path}", flush=True)
        if not well:
            failed.append(suite)
    if failed:
        print(f"\nFAILED: {', '.join(failed)}", flush=True)
    return CHECK_FAILED if failed else OK


def main(arguments=None):
    options = parse(arguments)
    suites = chosen_suites(options)
    if not suites:
        print(f"bench/run.py: no cell's name holds {options.filter!r}", file=sys.stderr)
        return USAGE
    problem = lacking(suites)
    if problem:
        print(problem, file=sys.stderr)
        return ENVIRONMENT
    if suites == ["compile"]:
        return measure_all(suites, options)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True  # what tf32 cells are measured beside
    with torch.no_grad():
        return measure_all(suites, options)


if __name__ == "__main__":
    sys.exit(main())
