"""The published schema and the C++ reader of specs know the same fields and values."""

import json
import pathlib

import kiln
import pytest

SCHEMA = json.loads((pathlib.Path(kiln.__file__).parent / "data" / "spec.schema.json").read_text())
DEFINITIONS = SCHEMA["$defs"]


def resolved(field):
    return DEFINITIONS[field["$ref"].split("/")[-1]] if "$ref" in field else field


def takes(op, **fields):
    spec = {"op": op, **({"head_dim": 64} if op == "flash_attention" else {}), **fields}
    return kiln.prewarm(spec, "sm_90", check=True)["total"] > 0


@pytest.mark.parametrize("op", ["flash_attention", "gemm"])
def test_every_enumerated_value_is_taken(op):
    for name, field in DEFINITIONS[op]["properties"].items():
        for value in resolved(field).get("enum", []):
            extra = {"dtype": "float16"} if name == "accumulator" else {}
            assert takes(op, **{**extra, name: value}), (name, value)


@pytest.mark.parametrize("op", ["flash_attention", "gemm"])
def test_every_value_beside_the_enumerated_is_refused(op):
    for name, field in DEFINITIONS[op]["properties"].items():
        if "enum" in resolved(field):
            with pytest.raises(ValueError, match=name):
                takes(op, **{name: "nonsense"})


@pytest.mark.parametrize("op", ["flash_attention", "gemm"])
def test_enumerated_specs_have_the_schemas_fields(op):
    fields = set(DEFINITIONS[op]["properties"])
    specs = [spec for spec in kiln.enumerate_specs("sm_90") if spec["op"] == op]
    assert specs
    assert all(set(spec) == fields for spec in specs)


def test_defaults_are_the_readers():
    for op in ("flash_attention", "gemm"):
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
