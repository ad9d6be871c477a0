"""`kiln doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import argparse
from typing import Any

from .. import control
from .output import CHECK_FAILED, ENVIRONMENT, OK, add_json_flag, byte_text, print_json


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command."""
    text = "report driver, GPUs, NVRTC and cache, and what to do about what is missing"
    parser = commands.add_parser("doctor", help=text, description=text)
    parser.add_argument("--require-gpu", action="store_true", help="exit 4 when no GPU can be used")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the report and judges it."""
    report = control.diagnose()
    problems, code = judge(report, options.require_gpu)
    if options.json:
        print_json({**report, "problems": problems})
        return code
    _print_report(report)
    for problem in problems:
        print(f"problem: {problem}")
    if not problems:
        print("all checks passed")
    return code


def judge(report: dict[str, Any], requires_gpu: bool) -> tuple[list[str], int]:
    """The problems and the exit code that they mean."""
    faults = [
        f"the cache folder {layer['path']} cannot be used: {layer['verdict']}"
        for layer in report["cache"]["layers"]
        if not layer["usable"]
    ]
    missing = []
    if not report["nvrtc"]["loaded"]:
        missing.append(f"no NVRTC: {report['nvrtc']['problem']}")
    gpu_problems = _gpu_problems(report)
    if requires_gpu:
        missing += gpu_problems
    elif report["driver"]["found"]:
        faults += gpu_problems  # a driver that is present but fails is no machine without a GPU
    code = ENVIRONMENT if missing else CHECK_FAILED if faults else OK
    return missing + faults, code


def _gpu_problems(report: dict[str, Any]) -> list[str]:
    problems = [device["problem"] for device in report["devices"] if "problem" in device]
    if not report["devices"]:
        problems.append(f"no GPU: {report['driver']['problem']}")
    return problems


def _print_report(report: dict[str, Any]) -> None:
    driver, nvrtc = report["driver"], report["nvrtc"]
    print(f"kiln    {report['version']}")
    print(f"driver  {_version_text(driver) if driver['found'] else driver['problem']}")
    for device in report["devices"]:
        print(f"gpu     cuda:{device['ordinal']} {_device_text(device)}")
    print(f"device  {_choice_text(report['device'])}")
    if nvrtc["loaded"]:
        print(f"nvrtc   {nvrtc['version']}, {nvrtc['path']} (found by: {nvrtc['how']})")
    else:
        print("nvrtc   none")
    if report["environment"]["KILN_TUNING"]:
        print(f"tuning  {report['environment']['KILN_TUNING']}")
    for layer in report["cache"]["layers"]:
        access = "writable" if layer["writable"] else "read-only"
        print(
            f"cache   {layer['path']} ({access}): {layer['entries']} kernels, "
            f"{byte_text(layer['bytes'])}, {layer['verdict']}"
        )


def _choice_text(device: dict[str, Any]) -> str:
    if device["host_arrays"]:
        where = f"NumPy arrays and CPU tensors run on {device['host_arrays']}"
    elif device["problem"]:
        where = "NumPy arrays and CPU tensors are refused, because the driver fails"
    else:
        where = "NumPy arrays and CPU tensors are refused; KILN_DEVICE=emulator computes them"
    return f"{device['choice']}: {where}"


def _version_text(driver: dict[str, Any]) -> str:
    major, minor = divmod(driver["version"], 1000)
    return f"CUDA {major}.{minor // 10}, {driver['path']}"


def _device_text(device: dict[str, Any]) -> str:
    if "problem" in device:
        return device["problem"]
    return (
        f"{device['name']}, compute capability {device['compute_capability']}, "
        f"{device['sm_count']} multiprocessors, {byte_text(device['memory_bytes'])}"
    )
