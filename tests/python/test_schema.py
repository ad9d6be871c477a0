"""The published schema and the C++ reader of specs know the same fields and values."""

import json
import pathlib
import subprocess
import sys

import kiln
import pytest

SCHEMA = json.loads((pathlib.Path(kiln.__file__).parent / "data" / "spec.schema.json").read_text())
DEFINITIONS = SCHEMA["$defs"]
OPERATIONS = [one["$ref"].split("/")[-1] for one in DEFINITIONS["spec"]["oneOf"]]
SERVING = ("cache_dtype", "out_dtype")  # fields of calls over sequences alone


def resolved(field):
    return DEFINITIONS[field["$ref"].split("/")[-1]] if "$ref" in field else field


def takes(op, **fields):
    spec = {"op": op, **({"head_dim": 64} if op == "flash_attention" else {}), **fields}
    return kiln.prewarm(spec, "sm_90", check=True)["total"] > 0


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_enumerated_value_is_taken(op):
    for name, field in DEFINITIONS[op]["properties"].items():
        for value in resolved(field).get("enum", []):
            extra = {"dtype": "float16"} if value == "float16" else {}
            if op == "gemm" and value in ("float8_e4m3fn", "float8_e5m2", "fast"):
                extra = {"dtype": "float8_e4m3fn"}
            elif value in ("groups", "blocks") or (op == "gemm" and name == "scale_dtype"):
                extra = {"dtype": "float8_e4m3fn", "scale_a": "groups", "scale_b": "groups"}
            elif name == "dtype_b":
                extra = {"dtype": value}
            elif op == "flash_attention" and (value in ("causal_each", "tree") or name in SERVING):
                extra = {"storage": "paged"}
            elif name == "gate":
                extra = {"activation": "swiglu"}
            assert takes(op, **{**extra, name: value}), (name, value)


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_value_beside_the_enumerated_is_refused(op):
    for name, field in DEFINITIONS[op]["properties"].items():
        if "enum" in resolved(field):
            with pytest.raises(ValueError, match=name):
                takes(op, **{name: "nonsense"})


@pytest.mark.parametrize("op", OPERATIONS)
def test_enumerated_specs_have_the_schemas_fields(op):
    fields = set(DEFINITIONS[op]["properties"])
    specs = [spec for spec in kiln.enumerate_specs("sm_90") if spec["op"] == op]
    assert specs
    assert all(set(spec) == fields for spec in specs)


def test_defaults_are_the_readers():
    for op in OPERATIONS:
        properties = DEFINITIONS[op]["properties"]
        defaults = {name: f["default"] for name, f in properties.items() if "default" in f}
        base = {"op": op, **({"head_dim": 64} if op == "flash_attention" else {})}
        bare = kiln.prewarm(base, "sm_90", check=True)["kernels"]
        spelled = kiln.prewarm({**base, **defaults}, "sm_90", check=True)["kernels"]
        assert [kernel["key"] for kernel in bare] == [kernel["key"] for kernel in spelled]


def test_variants():
    variant = {
        "name": "biased",
        "params": [["gain", "f32"]],
        "tensors": [["bias", "f32[h, q, kv]"]],
        "logits": "gain * logit + bias",
        "mask": "kv <= q",
    }
    assert set(variant) | {"file_text"} == set(DEFINITIONS["variant"]["properties"])
    assert takes("flash_attention", variant=variant)
    with pytest.raises(ValueError, match="variant"):
        takes("flash_attention", variant={"params": 3})


def fits(value, schema):
    """JSON Schema as far as ours uses it."""
    types = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}
    if "$ref" in schema and not fits(value, DEFINITIONS[schema["$ref"].split("/")[-1]]):
        return False
    if "oneOf" in schema and sum(fits(value, one) for one in schema["oneOf"]) != 1:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(
            is_integer if name == "integer" else isinstance(value, types[name]) for name in names
        ):
            return False
    if is_integer:
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return low <= value <= high and value % schema.get("multipleOf", 1) == 0
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        open_ended = schema.get("additionalProperties", True) is not False
        return set(schema.get("required", ())) <= set(value) and all(
            fits(item, properties[name]) if name in properties else open_ended
            for name, item in value.items()
        )
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        rest = schema.get("items", {})
        long_enough = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return long_enough and all(
            fits(item, first[i] if i < len(first) else rest) for i, item in enumerate(value)
        )
    return True


ATTENTION = {"op": "flash_attention", "head_dim": 64}
GEMM = {"op": "gemm"}
VARIANT = {"name": "v", "logits": "logit"}
GOOD = [
    ATTENTION,
    GEMM,
    *({**ATTENTION, name: None} for name in DEFINITIONS["flash_attention"]["properties"]),
    *({**GEMM, name: None} for name in DEFINITIONS["gemm"]["properties"]),
    {**ATTENTION, "block_q": 64, "softcap": True, "variant": VARIANT},
    {**ATTENTION, "variant": {**VARIANT, "params": [["a", "i32"]], "tensors": [["t", "u8[h]"]]}},
    {**ATTENTION, "variant": [VARIANT, {**VARIANT, "tensors": [["t", "i64[h, 32, *]"]]}]},
    {**GEMM, "epilogue": "acc", "block_m": 128},
]
GOOD = [spec for spec in GOOD if spec["op"] is not None and spec.get("head_dim", 64) is not None]
BAD = [
    {},
    [[[]], {}],
    "gemm",
    {"op": None},
    {"op": "flash_attention"},
    *({**ATTENTION, "head_dim": value} for value in (64.9, 2**32 + 64, 60, 0, None, "64", True)),
    *({**ATTENTION, name: ""} for name in ("dtype", "mask", "sinks", "softcap", "variant")),
    *({**ATTENTION, "block_q": value} for value in (0, -64, 64.5, 2**40, "64", True)),
    *({**GEMM, name: ""} for name in ("dtype", "out_dtype", "layout", "bias", "activation")),
    *({**GEMM, name: 1} for name in ("dtype", "layout", "epilogue", "loads")),
    {**GEMM, "blok_m": 128},
    {**ATTENTION, "variant": []},
    {**ATTENTION, "variant": [VARIANT] * 5},
    {**ATTENTION, "variant": [VARIANT, [VARIANT]]},
    {**ATTENTION, "variant": {**VARIANT, "masks": "kv < 3"}},
    {**ATTENTION, "variant": {**VARIANT, "mask": None}},
    {**ATTENTION, "variant": {**VARIANT, "params": [["a", "f32", "zz"]]}},
    {**ATTENTION, "variant": {**VARIANT, "params": [["a", "f16"]]}},
    {**ATTENTION, "variant": {**VARIANT, "params": {"a": "f32"}}},
    {**ATTENTION, "variant": {**VARIANT, "tensors": [["t", 3]]}},
]


@pytest.mark.parametrize("spec", GOOD, ids=json.dumps)
def test_good_specs_fit_the_schema_and_are_taken(spec):
    assert fits(spec, SCHEMA)
    assert kiln.prewarm([spec], "sm_90", check=True)["total"] > 0


def test_the_specs_of_a_call_with_several_kernels_may_stand_in_one_place():
    assert fits([[GEMM, ATTENTION], GEMM], SCHEMA)
    assert kiln.prewarm([[GEMM, ATTENTION]], "sm_90", check=True)["total"] > 10


def test_schema_and_page_are_what_the_fields_say():
    script = pathlib.Path(__file__).parents[2] / "scripts/spec_pages.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("spec", BAD, ids=json.dumps)
def test_bad_specs_fit_neither(spec):
    assert not fits(spec, SCHEMA)
    with pytest.raises(ValueError, match=r"^(spec|Variant)") as error:
        kiln.prewarm(json.dumps(spec), "sm_90", check=True)
    assert "json.exception" not in str(error.value)
