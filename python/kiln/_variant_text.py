"""Variants whose template file is a text that Python has written."""

from __future__ import annotations

import json
from typing import Any

from . import _core


def variant_of_text(
    name: str, params: dict[str, str], tensors: dict[str, str], text: str, mask: str = ""
) -> Any:
    """A variant of a template file's text. jit.Variant takes the file's path alone, but what it is
    pickled to has the text. `mask` is an expression from whose struct that of the text derives."""
    definition = {
        "name": name,
        "params": list(params.items()),
        "tensors": list(tensors.items()),
        "mask": mask,
        "file_text": text,
    }
    variant: Any = _core.Variant.__new__(_core.Variant)
    variant.__setstate__((json.dumps(definition), f"{name}.cuh"))
    return variant
