"""`kiln doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import argparse
import difflib
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from .. import control
from .doctor_text import print_report
from .output import CHECK_FAILED, ENVIRONMENT, OK, add_command, add_json_flag, print_json

# Distributions by the name that users know; the names of CuPy's contain the CUDA version.
_PACKAGES = {
    "numpy": ["numpy"],
    "torch": ["torch"],
    "cupy": ["cupy-cuda13x", "cupy-cuda12x", "cupy"],
    "nvidia-cuda-nvrtc": ["nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"],
}

# Those that Kiln reads, jit/compile/settings.cpp; docs/env.md describes them.
_VARIABLES = (
    "KILN_CACHE_DIR", "KILN_CACHE_MAX_SIZE", "KILN_CACHE_PATH", "KILN_DEVICE", "KILN_JIT",
    "KILN_LOG", "KILN_NVRTC", "KILN_RECORD", "KILN_TEMPLATE_DIR", "KILN_TUNING",
)  # fmt: skip


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "doctor",
        "report driver, GPUs, NVRTC, cache and versions, and what to do about problems",
        """Reports what Kiln finds on this machine: the CUDA driver and its GPUs, which NVRTC
        compiles and how it was found, the cache's folders with owner, mode and verdict, and the
        versions of related packages. Every problem is one sentence that says what to do. That there
        is no GPU is not a problem, unless --require-gpu is given.""",
        [
            ("kiln doctor", "the whole report"),
            ("kiln doctor --require-gpu", "exit 4 when no GPU can be used: for job scripts"),
            ("kiln doctor --json", "for programs: the report, its problems and its notes"),
        ],
    )
    parser.add_argument("--require-gpu", action="store_true", help="exit 4 when no GPU can be used")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the report and judges it."""
    report = gather()
    problems, code = judge(report, options.require_gpu)
    report.update(problems=problems, notes=notes_of(report))
    if options.json:
        print_json(report)
    else:
        print_report(report)
    return code


def gather() -> dict[str, Any]:
    """control.diagnose() and the versions of packages, none of which it imports."""
    report = control.diagnose()
    report["python"] = platform.python_version()
    report["packages"] = {name: _version_of(names) for name, names in _PACKAGES.items()}
    report["nvrtc"]["verdict"] = nvrtc_verdict(report)
    report["environment"]["unknown"] = unknown_variables(os.environ)
    return report


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Those that begin as Kiln's do, and that nothing reads."""
    return sorted(n for n in names if n.startswith("KILN_") and n not in _VARIABLES)


def nvrtc_verdict(report: dict[str, Any]) -> str:
    """Says whether NVRTC's version works with the driver's."""
    nvrtc, driver = report["nvrtc"], report["driver"]
    if not nvrtc["loaded"]:
        return "missing"
    if not driver["version"]:
        return "ok, no driver to compare it with"
    limit = f"{driver['version'] // 1000}.{driver['version'] % 1000 // 10}"
    if _numbers(nvrtc["version"]) > _numbers(limit):  # a newer major version is not used at all
        return f"ok, newer than the driver's CUDA {limit} but of its major version"
    return f"ok, not newer than the driver's CUDA {limit}"


def judge(report: dict[str, Any], requires_gpu: bool) -> tuple[list[str], int]:
    """Returns the problems and the exit code for them."""
    faults = [*_cache_problems(report), *_file_problems(report), *_arch_problems(report)]
    missing = []
    if not report["nvrtc"]["loaded"] and report["environment"]["KILN_JIT"] != "off":
        missing.append(f"no NVRTC: {report['nvrtc']['problem']}")
    gpu_problems = _gpu_problems(report)
    if requires_gpu:
        missing += gpu_problems
    elif report["driver"]["found"]:
        faults += gpu_problems  # a driver that fails is a problem; a missing one is not
    code = ENVIRONMENT if missing else CHECK_FAILED if faults else OK
    return missing + faults, code


def notes_of(report: dict[str, Any]) -> list[str]:
    """Returns facts that are worth knowing although they are not problems."""
    nvrtc = report["nvrtc"]
    notes = [f"this NVRTC was passed over: {text}" for text in nvrtc.get("passed_over", [])]
    if nvrtc.get("handles_signals"):
        notes.append(
            "this NVRTC handles SIGINT and SIGTERM itself while it compiles, and a signal then "
            "ends the process: prewarm the cache and set KILN_JIT=off where that matters"
        )
    if not nvrtc["loaded"] and report["environment"]["KILN_JIT"] == "off":
        notes.append("no NVRTC, and none is needed: KILN_JIT=off compiles nothing")
    notes += [
        f"the cache folder {layer['path']}: {text}"
        for layer in report["cache"]["layers"]
        for text in (layer["advice"] if layer["verdict"] == "ok" else "", layer["warning"])
        if text
    ]
    for name in report["environment"].get("unknown", []):
        (nearest,) = difflib.get_close_matches(name, _VARIABLES, n=1, cutoff=0.0)
        notes.append(
            f"{name} is set and has no effect, as Kiln has no such variable: docs/env.md lists "
            f"them, and {nearest} is the nearest"
        )
    if not report["driver"]["found"]:
        notes.append(
            f"no GPU can be used, as {report['driver']['problem']}; until then kernels can be "
            "compiled, inspected and emulated"
        )
    return notes


def _cache_problems(report: dict[str, Any]) -> list[str]:
    return [
        f"the cache folder {layer['path']} {layer['verdict']}: {layer['advice']}"
        for layer in report["cache"]["layers"]
        if layer["verdict"] != "ok"
    ]


def _file_problems(report: dict[str, Any]) -> list[str]:
    environment, problems = report["environment"], []
    folder, tuning = environment["KILN_TEMPLATE_DIR"], environment["KILN_TUNING"]
    if folder and not os.path.isdir(folder):
        problems.append(
            f"KILN_TEMPLATE_DIR={folder} is not a folder: name one like Kiln's templates/, or "
            "unset the variable"
        )
    if tuning:
        try:
            control.set_tuning(control.set_tuning(tuning))
        except ValueError as error:
            problems.append(
                f"KILN_TUNING is ignored: {error}; write it anew with `kiln tune`, or unset it"
            )
    return problems


def _arch_problems(report: dict[str, Any]) -> list[str]:
    nvrtc, problems = report["nvrtc"], []
    for device in report["devices"]:
        if "problem" in device or not nvrtc["loaded"]:
            continue
        major, minor = _numbers(device["compute_capability"])
        if not any(arch // 10 == major and arch % 10 <= minor for arch in nvrtc["archs"]):
            problems.append(
                f"NVRTC {nvrtc['version']} cannot compile for cuda:{device['ordinal']} "
                f"(compute capability {major}.{minor}): install a newer one with "
                "`pip install -U nvidia-cuda-nvrtc`, and a driver that allows it"
            )
    return problems


def _gpu_problems(report: dict[str, Any]) -> list[str]:
    problems = [
        f"cuda:{device['ordinal']} cannot be used: {device['problem']}"
        for device in report["devices"]
        if "problem" in device
    ]
    if not report["devices"]:
        problems.append(f"no GPU: {report['driver']['problem']}")
    return problems


def _version_of(names: list[str]) -> str | None:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
