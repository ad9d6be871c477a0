"""`kiln cache info|list|verify|prune|clear`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from .. import _core
from .output import CHECK_FAILED, ENVIRONMENT, OK, add_json_flag, byte_text, print_json, print_table

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_NO_LIMIT = 2**63 - 1


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command and its actions."""
    parser = commands.add_parser("cache", help="look at, check and clean the kernel cache")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    texts = {
        info: "the layers, their sizes and whether they can be used",
        list_entries: "every kernel",
        verify: "check every entry; exit 1 when one is faulty",
        prune: "remove the least recently used kernels that are not pinned",
        clear: "remove every kernel of the writable folder",
    }
    for function, text in texts.items():
        name = "list" if function is list_entries else function.__name__
        action = actions.add_parser(name, help=text, description=text)
        add_json_flag(action)
        action.set_defaults(run=function)
        if function is prune:
            action.add_argument("--max-size", type=_bytes, help="keep this much, such as 2G")
            action.add_argument(
                "--older-than-nvrtc",
                default="",
                metavar="VERSION",
                help="remove what an older NVRTC compiled, such as 13.0",
            )


def info(options: argparse.Namespace) -> int:
    """The layers."""
    report = json.loads(_core.cache_info())
    if options.json:
        print_json(report)
        return OK
    print_table(
        ["folder", "writable", "entries", "size", "state"],
        [
            [
                layer["path"],
                "yes" if layer["writable"] else "no",
                layer["entries"],
                byte_text(layer["bytes"]),
                layer["verdict"],
            ]
            for layer in report["layers"]
        ],
    )
    return OK


def list_entries(options: argparse.Namespace) -> int:
    """Every entry, the most recently used first."""
    entries = json.loads(_core.cache_list())
    if options.json:
        print_json(entries)
        return OK
    entries.sort(key=lambda entry: -entry["last_used"])
    print_table(
        ["key", "kernel", "arch", "size", "pinned", "last used"],
        [
            [
                entry["key"][:12],
                entry["what"],
                entry["arch"],
                byte_text(entry["bytes"]),
                "yes" if entry["pinned"] else "",
                time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["last_used"])),
            ]
            for entry in entries
        ],
    )
    return OK


def verify(options: argparse.Namespace) -> int:
    """Reads and checks every entry."""
    report = json.loads(_core.cache_verify())
    faulty = report["faults"]
    if options.json:
        print_json(report)
    else:
        for entry in faulty:
            print(f"{entry['path']}: {entry['fault']}")
        print(f"{report['checked']} entries checked, {len(faulty)} faulty")
    return CHECK_FAILED if faulty else OK


def prune(options: argparse.Namespace) -> int:
    """Removes by age."""
    if options.max_size is None and not options.older_than_nvrtc:
        raise ValueError("cache prune needs --max-size or --older-than-nvrtc")
    keep = _NO_LIMIT if options.max_size is None else options.max_size
    return _removed(json.loads(_core.cache_prune(keep, options.older_than_nvrtc)), options)


def clear(options: argparse.Namespace) -> int:
    """Removes everything."""
    return _removed(json.loads(_core.cache_clear()), options)


def _removed(report: dict[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        print_json(report)
    else:
        print(f"{report['removed']} kernels removed")
        if report["problem"]:
            print(f"kiln: {report['problem']}", file=sys.stderr)
    return ENVIRONMENT if report["problem"] else OK


def _bytes(text: str) -> int:
    unit = text[-1:].upper() if text[-1:].upper() in _UNITS else ""
    digits = text[: len(text) - len(unit)]
    size = int(digits) * _UNITS[unit] if digits.isdecimal() and len(digits) < 20 else _NO_LIMIT + 1
    if size > _NO_LIMIT:
        raise argparse.ArgumentTypeError(f"must be like 500M or 2G and below 2^63, got {text!r}")
    return size
