"""JSON that a user names: every file or text of it is parsed here, so that each fault is one
sentence that names the file."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str, name: str) -> Any:
    """The value of a text; `name` says where it came from. Raises ValueError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None


def read_json(path: str) -> Any:
    """The value of a file. Raises ValueError, and OSError for a file that cannot be read."""
    return parse_json(_read_text(path), path)


def parse_specs(text: str, name: str) -> dict[str, Any]:
    """The specs of a text, each by its place in it: JSON, or the lines of KILN_RECORD, an object
    each. Raises ValueError."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            lines.setdefault(line, number)  # several processes record the same kernels
    if not lines or not _is_object(next(iter(lines))):
        return _specs_of(parse_json(text, name), name)
    places = {f"line {number} of {name}": line for line, number in lines.items()}
    return {place: parse_json(line, place) for place, line in places.items()}


def _specs_of(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return {name: value}
    if isinstance(value, list):
        return {f"entry {number} of {name}": spec for number, spec in enumerate(value, 1)}
    raise ValueError(
        f"{name} must hold a spec, which is a JSON object, or an array of them; see docs/prewarm.md"
    )


def read_specs(path: str) -> dict[str, Any]:
    """The specs of a file, as parse_specs. Raises OSError, too."""
    return parse_specs(_read_text(path), path)


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        try:
            return file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not JSON: {error}") from None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
