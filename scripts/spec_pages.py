"""Writes what is made of the operations' fields: the schema of specs and docs/prewarm.md's tables.

Run it with the package of this tree (`make docs`). With --check it writes nothing and fails where
a file is not what it would write.
"""

import argparse
import json
import pathlib
import re
import sys
from typing import Any

from kiln import _core

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "python/kiln/data/spec.schema.json"
PAGE = ROOT / "docs/prewarm.md"
BEGIN = "<!-- written by scripts/spec_pages.py -->"
END = "<!-- end -->"

VARIANT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "params": {
            "description": "[name, type] pairs in order",
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"enum": ["f32", "i32"]}],
                "minItems": 2,
                "maxItems": 2,
            },
        },
        "tensors": {
            "description": '[name, "f32[h, q, kv]"] pairs in order',
            "type": "array",
            "items": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 2,
                "maxItems": 2,
            },
        },
        "logits": {"type": "string"},
        "mask": {"type": "string"},
        "file_text": {
            "description": "a template file that defines struct UserVariant",
            "type": "string",
        },
    },
}
EPILOGUE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["value"],
    "properties": {
        **{name: VARIANT["properties"][name] for name in ("name", "params")},
        "tensors": {
            **VARIANT["properties"]["tensors"],
            "description": '[name, "f32[n]"] pairs in order',
        },
        "value": {"type": "string"},
    },
}
TILE_SIZE = {"type": ["integer", "null"], "minimum": 1, "maximum": 2147483647}
VARIANT_TEXT = (
    '`{"name", "params": [[name, type], …], "tensors": [[name, "f32[h, q, kv]"], …], "logits", '
    '"mask", "file_text"}`, an array of 1 to 4 of these, null'
)
EPILOGUE_TEXT = (
    'text, `{"name", "params": [[name, type], …], "tensors": [[name, "f32[n]"], …], "value"}`, null'
)


def field_schema(field):
    """A property of the traits."""
    kind, default = field["kind"], field["default"]
    schema = {"description": field["help"]} if field["help"] else {}
    if kind == "flag":
        schema |= {"type": ["boolean", "null"], "default": default == "true"}
    elif kind == "choice":
        schema |= {"enum": [*field["values"], None]}
        if default:
            schema["default"] = default
    elif kind == "integer":
        limits = {
            "type": "integer",
            "minimum": field["least"],
            "maximum": field["most"],
            "multipleOf": field["multiple"],
        }
        choices = [limits, *([{"const": field["also"]}] if "also" in field else [])]
        if not field["required"]:
            choices.insert(0, {"type": "null"})
        schema |= {"oneOf": choices} if len(choices) > 1 else limits
    elif kind == "variant":
        one = {"$ref": "#/$defs/variant"}
        several = {"type": "array", "items": one, "minItems": 1, "maxItems": 4}
        schema |= {"oneOf": [{"type": "null"}, one, several], "default": None}
    else:
        one = {"$ref": "#/$defs/epilogue"}
        schema |= {"oneOf": [{"type": ["string", "null"]}, one], "default": None}
    return schema


def tile_schema(field):
    """A property of a config row."""
    schema = {"description": field["help"]} if field["help"] else {}
    return schema | ({"type": ["boolean", "null"]} if field["kind"] == "flag" else TILE_SIZE)


def family_schema(family):
    """An operation's spec."""
    properties = {"op": {"const": family["op"]}}
    properties |= {field["name"]: field_schema(field) for field in family["fields"]}
    properties |= {field["name"]: tile_schema(field) for field in family["tile_fields"]}
    required = [field["name"] for field in family["fields"] if field["required"]]
    return {
        "type": "object",
        "required": ["op", *required],
        "additionalProperties": False,
        "properties": properties,
    }


def schema_text(families):
    """The whole schema, as a file."""
    names = [family["op"] for family in families]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Kiln prewarm spec",
        "description": "Kernels named by their properties, without tensors. A tile field that is "
        "absent stands for every row of the config table. null means: as if absent. Written by "
        "scripts/spec_pages.py.",
        "$ref": "#/$defs/specs",
        "$defs": {
            "specs": {
                "oneOf": [
                    {"$ref": "#/$defs/spec"},
                    {"type": "array", "items": {"$ref": "#/$defs/specs"}},
                ]
            },
            "spec": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names]},
            "variant": VARIANT,
            "epilogue": EPILOGUE,
            **{family["op"]: family_schema(family) for family in families},
        },
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def values_text(field):
    """What a field may be, as a table's cell."""
    kind = field["kind"]
    if kind == "flag":
        return "true, false"
    if kind == "choice":
        return ", ".join(f"`{value}`" for value in field["values"])
    if kind == "integer":
        also = f", {field['also']}" if "also" in field else ""
        return f"multiples of {field['multiple']} up to {field['most']}{also}"
    return VARIANT_TEXT if kind == "variant" else EPILOGUE_TEXT


def default_text(field):
    """What is meant where a field is left out."""
    if field["required"]:
        return "required"
    if field["default"]:
        return f"`{field['default']}`" if field["kind"] == "choice" else field["default"]
    said = re.search(r"default: ([^;]*)", field["help"])
    return said.group(1) if said else "null"


def table_text(family):
    """An operation's fields as a table."""
    lines = [f"| {family['title']} | values | | default |", "|---|---|---|---|"]
    for field in family["fields"]:
        help_text = field["help"].replace("|", "\\|")
        row = [f"`{field['name']}`", values_text(field), help_text, default_text(field)]
        lines.append("| " + " | ".join(row) + " |")
    for field in family["tile_fields"]:
        kind = "true, false" if field["kind"] == "flag" else "a row's"
        lines.append(f"| `{field['name']}` | {kind} | {field['help']} | all rows |")
    return "\n".join(lines)


def page_text(families):
    """docs/prewarm.md with its tables renewed."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    has_fields = [family for family in families if family["fields"] or family["tile_fields"]]
    tables = "\n\n".join(table_text(family) for family in has_fields)
    return f"{head}{BEGIN}\n\n{tables}\n\n{END}{tail}"


def main():
    """Writes or checks both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    options = parser.parse_args()
    families = json.loads(_core.describe_families())
    stale = []
    for path, text in ((SCHEMA, schema_text(families)), (PAGE, page_text(families))):
        if path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not options.check:
            path.write_text(text, encoding="utf-8")
    if options.check and stale:
        sys.exit(f"not what scripts/spec_pages.py writes: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
