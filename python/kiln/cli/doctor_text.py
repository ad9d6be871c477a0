"""The report of `kiln doctor` as lines for a person."""

from __future__ import annotations

from typing import Any

from .output import byte_text
from .terminal import paint


def print_report(report: dict[str, Any]) -> None:
    """Prints a line for each item, then notes and problems, then the verdict."""
    for label, text in _facts(report):
        print(f"{label:6}  {text}")
    for note in report["notes"]:
        print(f"{paint('note', 'caution')}: {note}")
    for problem in report["problems"]:
        print(f"{paint('problem', 'bad')}: {problem}")
    if not report["problems"]:
        print(paint("all checks passed", "good"))


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("kiln", report["version"]),
        ("python", _python_text(report)),
        ("driver", _driver_text(report["driver"])),
        *(("gpu", _device_text(device)) for device in report["devices"]),
        ("device", _choice_text(report["device"])),
        ("nvrtc", _nvrtc_text(report["nvrtc"])),
    ]
    if report["environment"]["KILN_TUNING"]:
        facts.append(("tuning", report["environment"]["KILN_TUNING"]))
    if report["environment"]["KILN_RECORD"]:
        facts.append(("records misses in", report["environment"]["KILN_RECORD"]))
    facts += [("cache", _layer_text(layer)) for layer in report["cache"]["layers"]]
    return facts


def _python_text(report: dict[str, Any]) -> str:
    packages = report["packages"]
    found = [f"{name} {version}" for name, version in packages.items() if version]
    absent = [name for name, version in packages.items() if not version]
    text = ", ".join([report["python"], *found])
    return f"{text}; not installed: {', '.join(absent)}" if absent else text


def _driver_text(driver: dict[str, Any]) -> str:
    if not driver["found"]:
        return paint("none", "caution")
    major, minor = divmod(driver["version"], 1000)
    text = f"CUDA {major}.{minor // 10}, {driver['path']}"
    return f"{text}: {paint('unusable', 'bad')}" if driver["problem"] else text


def _device_text(device: dict[str, Any]) -> str:
    if "name" not in device:
        return f"cuda:{device['ordinal']} {paint('unusable', 'bad')}"
    text = (
        f"cuda:{device['ordinal']} {device['name']}, compute capability "
        f"{device['compute_capability']}, {device['sm_count']} multiprocessors, "
        f"{byte_text(device['memory_bytes'])}"
    )
    verdict = paint("unusable", "bad") if "problem" in device else paint("ok", "good")
    return f"{text}: {verdict}"


def _choice_text(device: dict[str, Any]) -> str:
    if device["cpu_tensors"]:
        where = f"NumPy arrays and CPU tensors run on {device['cpu_tensors']}"
    elif device["host_arrays"]:
        where = (
            f"NumPy arrays are copied to {device['host_arrays']} and back; CPU tensors are "
            "refused, KILN_DEVICE=emulator computes them"
        )
    else:
        where = "NumPy arrays and CPU tensors are refused, because the driver fails"
    return f"{device['choice']}: {where}"


def _nvrtc_text(nvrtc: dict[str, Any]) -> str:
    if not nvrtc["loaded"]:
        return paint("none", "bad")
    verdict = paint("ok", "good") + nvrtc["verdict"][len("ok") :]
    return f"{nvrtc['version']}, {nvrtc['path']} (found by: {nvrtc['how']}): {verdict}"


def _layer_text(layer: dict[str, Any]) -> str:
    kind = "writable" if layer["writable"] else "read-only"
    held = f"{layer['entries']} kernels, {byte_text(layer['bytes'])}"
    if not layer["owner"]:
        facts = f"{kind}, not there yet" if layer["verdict"] == "ok" else kind
    else:
        facts = f"{kind}, owner {layer['owner']}, mode {layer['mode']}"
    verdict = paint(layer["verdict"], "good" if layer["verdict"] == "ok" else "bad")
    return f"{layer['path']} ({facts}): {held}: {verdict}"
