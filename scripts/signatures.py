#!/usr/bin/env python3
"""Writes what C++, the stubs and PyTorch's operators know of the operations' signatures from
python/operations.pyi.

scripts/signatures.py            (make signatures)
scripts/signatures.py --check    names the files that are not what it would write (make lint)
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import signature_cpp
import signature_python
from signature_model import DESCRIPTION, ROOT, operations

# Folders that hold generated files and, by these names, others.
GENERATED = (signature_cpp.FOLDER, signature_python.TRACED)
BY_HAND = (".clang-format", "__init__.py")


def files(description: pathlib.Path = ROOT / DESCRIPTION) -> dict[str, str]:
    """The text of every generated file, by its path from the repository's root."""
    found = operations(description)
    return {**signature_cpp.files(found), **signature_python.files(found)}


def stale(root: pathlib.Path = ROOT) -> list[str]:
    """Generated files that are missing, differ from the description, or belong to no operation."""
    expected = files(root / DESCRIPTION)
    differing = [name for name, text in expected.items() if _text(root / name) != text]
    there = [path for folder in GENERATED for path in (root / folder).glob("*.*")]
    names = [path.relative_to(root).as_posix() for path in there if path.name not in BY_HAND]
    return sorted(differing + [name for name in names if name not in expected])


def _text(path: pathlib.Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main() -> int:
    """Writes the files, or checks them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    found = stale()
    if parser.parse_args().check:
        for name in found:
            print(f"{name} is not what {DESCRIPTION} says: run make signatures", file=sys.stderr)
        return 1 if found else 0
    expected = files()
    for name in found:
        if name in expected:
            path = ROOT / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(expected[name], encoding="utf-8")
        else:
            (ROOT / name).unlink()
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
