"""The properties of a kernel as flags, and the spec that they say.

What there is comes from the fields of the operations (kiln._core.describe_families), which specs,
their schema and docs/prewarm.md are made of too.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from typing import Any

from .. import _core
from ..json_file import parse_json
from .output import DTYPES, dtype_name, operand_dtype_name


@cache
def families() -> dict[str, dict[str, Any]]:
    """Every operation by name, as kiln/control.h describes it."""
    return {family["op"]: family for family in json.loads(_core.describe_families())}


def add_properties(parser: argparse.ArgumentParser, op: str) -> None:
    """A flag for each property of an operation's kernels and for each field of their tiles."""
    family = families()[op]
    names = []
    for field in family["fields"]:
        if _add_field(parser, field):
            names.append(field["name"])
    for field in family["tile_fields"]:
        if field["kind"] == "integer":
            parser.add_argument(_flag(field), type=int, help=f"one row: {field['help']}")
        else:
            text = field["help"].replace("null = ", "neither flag: ")
            parser.add_argument(_flag(field), action=argparse.BooleanOptionalAction, help=text)
        names.append(field["name"])
    parser.set_defaults(properties=tuple(names))


def make_spec(options: argparse.Namespace) -> dict[str, Any]:
    """The spec that the flags describe; a tile field that is not given stands for every row."""
    values = {name: getattr(options, name) for name in options.properties}
    return {"op": options.op, **{key: value for key, value in values.items() if value is not None}}


def _flag(field: dict[str, Any]) -> str:
    return field["flag"] or "--" + field["name"].replace("_", "-")


def _spelled(name: str) -> str:
    """argparse type: "bf16" to "bfloat16"; other names are kept."""
    return DTYPES.get(name, name)


def _expression(text: str) -> Any:
    """argparse type: a C++ expression, or an object with parameters and tensors, as in specs."""
    if text.strip() == "null":
        return None
    if not text.lstrip().startswith("{"):
        return text
    try:
        return parse_json(text, repr(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"must be a C++ expression or a JSON object, and {error}"
        ) from None


def _add_field(parser: argparse.ArgumentParser, field: dict[str, Any]) -> bool:
    """Adds the flags of one property. Returns False if flags cannot express it."""
    name, kind, default = field["name"], field["kind"], field["default"]
    if kind == "variant":
        return False  # a variant is an object: give it in a spec file
    if field["flag_each"]:
        _add_each(parser, field)
    elif kind == "flag":
        turns_off = default == "true"
        action = "store_false" if turns_off else "store_true"
        text = f"not: {field['help']}" if turns_off else field["help"]
        parser.add_argument(_flag(field), dest=name, action=action, help=text)
    elif kind == "integer":
        parser.add_argument(_flag(field), type=int, required=field["required"], help=field["help"])
    elif kind == "expression":
        parser.add_argument(_flag(field), type=_expression, help=field["help"])
    else:
        text = field["help"] + (f"; default: {default}" if default else "")
        parser.add_argument(_flag(field), type=_spelled, choices=field["values"], help=text)
    return True


def _add_each(parser: argparse.ArgumentParser, field: dict[str, Any]) -> None:
    """Adds a flag for each value except the default: --causal, --window."""
    group = parser.add_mutually_exclusive_group()
    for value in field["values"]:
        if value != field["default"]:
            flag, text = "--" + value.replace("_", "-"), _meaning(field, value)
            group.add_argument(
                flag, dest=field["name"], action="store_const", const=value, help=text
            )


def _meaning(field: dict[str, Any], value: str) -> str:
    """Returns what the help of a field, "one: of the first kind; two: ...", says of one value."""
    for part in field["help"].split("; "):
        name, _, meaning = part.partition(": ")
        if name == value and meaning:
            return f"{field['name']}: {meaning}"
    return f"{field['name']}: {value}, {field['help']}"


def add_product(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a product that `tune` and `bench` share, apart from its sizes."""
    parser.add_argument(
        "--dtype", type=operand_dtype_name, default="bfloat16", help="default: bfloat16"
    )
    parser.add_argument(
        "--out-dtype", type=dtype_name, help="default: --dtype, bfloat16 for 8-bit floats"
    )
    parser.add_argument(
        "--layout",
        choices=["nn", "nt", "tn", "tt"],
        default="nt",
        help="of a, then b; t = stored transposed; default: nt",
    )
    parser.add_argument(
        "--precision", choices=["full", "fast"], default="full", help="of 8-bit floats"
    )
