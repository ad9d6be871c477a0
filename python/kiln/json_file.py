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
    with open(path, encoding="utf-8") as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
    return parse_json(text, path)
