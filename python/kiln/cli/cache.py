"""`kiln cache info|list|verify|prune|clear`; bundle.py has export and import."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from .. import _core
from . import bundle
from .output import (
    CHECK_FAILED,
    ENVIRONMENT,
    OK,
    add_command,
    add_json_flag,
    byte_text,
    print_json,
    print_table,
)
from .terminal import Painted, paint

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_NO_LIMIT = 2**63 - 1


def add_parser(commands: Any) -> None:
    """Adds the command and its actions."""
    parser = add_command(
        commands,
        "cache",
        "look at, check and clean the kernel cache",
        """Looks at, checks and cleans the folders where compiled kernels are kept: the writable
        one (KILN_CACHE_DIR) and the read-only ones after it (KILN_CACHE_PATH). Only the writable
        one is ever changed. Bundles bring kernels to other machines. See docs/cache.md.""",
        [
            ("kiln cache info", "folders, owners, sizes"),
            ("kiln cache list", "every kernel"),
            ("kiln cache prune --max-size 2G", "remove the least recently used"),
        ],
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (function, summary, description, examples) in _ACTIONS.items():
        action = add_command(actions, name, summary, description, examples)
        add_json_flag(action)
        action.set_defaults(run=function)
        if name in _FLAGS:
            _FLAGS[name](action)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-size", type=_bytes, metavar="SIZE", help="how much is kept: 500M, 2G"
    )
    parser.add_argument(
        "--older-than",
        type=_days,
        metavar="DAYS",
        help="remove kernels that were not used for this long",
    )
    parser.add_argument(
        "--older-than-nvrtc",
        default="",
        metavar="VERSION",
        help="remove what an NVRTC older than this compiled, such as 13.0; pinned or not",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="remove nothing, and report what would be removed"
    )


def info(options: argparse.Namespace) -> int:
    """Prints the layers."""
    report = json.loads(_core.cache_info())
    if options.json:
        print_json(report)
        return OK
    print_table(
        ["folder", "writable", "owner", "mode", "entries", "size", "state"],
        [
            [
                layer["path"],
                "yes" if layer["writable"] else "no",
                layer["owner"] or "-",
                layer["mode"] if layer["owner"] else "-",
                layer["entries"],
                byte_text(layer["bytes"]),
                Painted(layer["verdict"], "good" if layer["verdict"] == "ok" else "bad"),
            ]
            for layer in report["layers"]
        ],
    )
    for layer in report["layers"]:
        for text in filter(None, (layer["advice"], layer["warning"])):
            print(f"{layer['path']}: {text}")
    return OK


def list_entries(options: argparse.Namespace) -> int:
    """Prints every entry, the most recently used first."""
    entries = json.loads(_core.cache_list())
    if options.json:
        print_json(entries)
        return OK
    _print_entries(entries)
    return OK


def _print_entries(entries: list[dict[str, Any]]) -> None:
    print_table(
        ["key", "kernel", "arch", "size", "pinned", "last used"],
        [
            [
                entry["key"][:12],
                entry["what"],
                entry["arch"],
                byte_text(entry["bytes"]),
                "yes" if entry["pinned"] else "",
                _when(entry["last_used"]),
            ]
            for entry in sorted(entries, key=lambda entry: -entry["last_used"])
        ],
    )


def _when(seconds: int) -> str:
    # 0 stands for a time in the future, which another clock has set.
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds > 0 else "unknown"


def verify(options: argparse.Namespace) -> int:
    """Reads and checks every entry."""
    report = json.loads(_core.cache_verify())
    faulty = report["faults"]
    if options.json:
        print_json(report)
    else:
        for entry in faulty:
            print(f"{entry['path']}: {paint(entry['fault'], 'bad')}")
        verdict = paint(f"{len(faulty)} faulty", "bad" if faulty else "good")
        print(f"{report['checked']} entries checked, {verdict}")
        if any(entry["key"] for entry in faulty):
            print("a faulty entry counts as missing: the next call or prewarm builds it again")
    return CHECK_FAILED if faulty else OK


def prune(options: argparse.Namespace) -> int:
    """Removes entries by size and by age."""
    if options.max_size is None and options.older_than is None and not options.older_than_nvrtc:
        raise ValueError("cache prune needs --max-size, --older-than or --older-than-nvrtc")
    unused_since = 0 if options.older_than is None else time.time() - options.older_than * 86400
    report = json.loads(
        _core.cache_prune(
            max_bytes=options.max_size,
            unused_since=int(unused_since),
            older_than_nvrtc=options.older_than_nvrtc,
            dry_run=options.dry_run,
        )
    )
    return _removed(report, options, options.dry_run)


def clear(options: argparse.Namespace) -> int:
    """Removes every entry of the writable folder."""
    return _removed(json.loads(_core.cache_clear()), options)


def _removed(report: dict[str, Any], options: argparse.Namespace, is_dry: bool = False) -> int:
    if options.json:
        print_json({**report, "dry_run": is_dry})
        return ENVIRONMENT if report["problem"] else OK
    if is_dry and report["entries"]:
        _print_entries(report["entries"])
    done = "would be removed" if is_dry else "removed"
    print(f"{report['removed']} kernels {done}, {byte_text(report['bytes'])}")
    if report["kept_pinned"]:
        print(
            f"{report['kept_pinned']} pinned kernels kept, as they were prewarmed: "
            "`kiln cache clear` removes them too"
        )
    if report["problem"]:
        print(f"kiln: {report['problem']}", file=sys.stderr)
    return ENVIRONMENT if report["problem"] else OK


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= 36500:
        raise argparse.ArgumentTypeError(f"must be days from 0 to 36500, got {text!r}")
    return days


def _bytes(text: str) -> int:
    unit = text[-1:].upper() if text[-1:].upper() in _UNITS else ""
    digits = text[: len(text) - len(unit)]
    size = int(digits) * _UNITS[unit] if digits.isdecimal() and len(digits) < 20 else _NO_LIMIT + 1
    if size > _NO_LIMIT:
        raise argparse.ArgumentTypeError(f"must be like 500M or 2G and below 2^63, got {text!r}")
    return size


_ACTIONS = {
    "info": (
        info,
        "the folders, their owners, sizes and whether they can be used",
        """Lists the folders in the order in which kernels are looked up: owner, mode, number of
        kernels, size, and why a folder is not used.""",
        [("kiln cache info", ""), ("KILN_CACHE_PATH=/opt/kiln kiln cache info", "another layer")],
    ),
    "list": (
        list_entries,
        "every kernel",
        """Lists every kernel of every folder, the most recently used first: key, description, arch,
        size, and whether it was pinned by prewarming.""",
        [("kiln cache list", ""), ("kiln cache list --json", "with paths and NVRTC versions")],
    ),
    "verify": (
        verify,
        "check every entry; exit 1 when one is faulty",
        """Reads every entry and compares it with its digests. Exits with 1 when an entry is faulty
        or a folder is not used. A faulty entry does no harm, because it counts as missing.""",
        [("kiln cache verify", ""), ("kiln cache verify --json", "which, and what is wrong")],
    ),
    "prune": (
        prune,
        "remove the least recently used kernels that are not pinned",
        """Removes kernels from the writable folder: the least recently used until the rest fits
        --max-size, those not used for --older-than days, and those that an NVRTC older than
        --older-than-nvrtc compiled. Prewarmed kernels are pinned: only the last rule removes
        them.""",
        [
            ("kiln cache prune --max-size 2G", "keep the 2 GiB used last"),
            ("kiln cache prune --older-than 30 --dry-run", "what was not used for 30 days?"),
            ("kiln cache prune --older-than-nvrtc 13.0", "after an update: prewarm again"),
        ],
    ),
    "clear": (
        clear,
        "remove every kernel of the writable folder",
        """Removes every kernel of the writable folder, pinned or not. Files that the cache did not
        make and read-only folders are not changed.""",
        [("kiln cache clear", ""), ("KILN_CACHE_DIR=/tmp/kiln kiln cache clear", "another folder")],
    ),
    **bundle.ACTIONS,
}
_FLAGS = {
    "prune": _add_limits,
    "export": bundle.add_export_flags,
    "import": bundle.add_import_flags,
}
