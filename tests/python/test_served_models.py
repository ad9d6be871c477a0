"""The kernels of a model's KV cache among its specs, and that a served model needs no others."""

import json

import kiln
import ml_dtypes
import numpy
import pytest
from kernel_keys import keys_of_call, keys_of_specs
from kiln import models

CONFIG = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}


def specs_of(name, op, cache_dtype=None):
    specs = models.model_specs(models.load_model(name)[1], "bfloat16", cache_dtype)
    return [spec for spec in specs if spec["op"] == op]


def forms(specs):
    """Tells what a kernel does beside copying, and whether by slots."""
    return [
        (spec.get("rotary", 0), spec.get("weight") is not None, spec.get("sequences", False))
        for spec in specs
    ]


def test_appending_rotates_by_both_kinds_of_tables():
    specs = specs_of("Llama-3.1-8B", "append_kv")
    by_slots = [(0, False, False), (128, False, False), (128, False, False)]
    assert forms(specs) == by_slots + [(*form[:2], True) for form in by_slots]
    tables = {spec["rotary_dtype"] for spec in specs if spec.get("rotary")}
    assert tables == {"float32", "bfloat16"}
    assert all(spec["query"] for spec in specs if spec.get("rotary"))


def test_norms_of_heads_and_partial_rotations_are_the_model_s():
    glm = specs_of("GLM-4.5", "append_kv")
    assert (64, True, False) in forms(glm) and (64, False, True) in forms(glm)
    assert (64, True, True) not in forms(glm)  # k_new is not normed
    assert {form[:2] for form in forms(specs_of("GLM-4.5-Air", "append_kv"))} == {
        (0, False), (64, False)
    }  # fmt: skip
    (rotary,) = {s["interleaved"] for s in specs_of("GLM-4-9B-0414", "append_kv") if "query" in s}
    assert rotary is True


def test_a_quantised_cache_is_written_by_slots():
    plain = specs_of("Llama-3.1-8B", "append_kv")
    specs = specs_of("Llama-3.1-8B", "append_kv", "int8")
    added = [spec for spec in specs if spec not in plain]
    assert len(added) == 3 and len(specs) == len(plain) + 3
    assert all(spec["cache_dtype"] == "int8" and "sequences" not in spec for spec in added)


def test_merging_applies_sinks_once():
    assert [spec["sinks"] for spec in specs_of("gpt-oss-20b", "merge_states")] == [None, "bfloat16"]
    assert [spec["sinks"] for spec in specs_of("Llama-3.1-8B", "merge_states")] == [None]


def test_a_layer_of_experts_needs_no_other_kernels(tmp_path):
    config = {**CONFIG, "num_local_experts": 8, "intermediate_size": 14336}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("Mixtral-8x7B", str(tmp_path)):
        specs = models.model_specs(models.load_model(name)[1], "bfloat16")
        known = keys_of_specs(specs, "sm_90a")
        x, router, up, down = (
            numpy.zeros(shape, ml_dtypes.bfloat16)
            for shape in ((8, 64), (16, 64), (16, 96, 64), (16, 64, 48))
        )
        logits, offsets = numpy.zeros((8, 16), numpy.float32), numpy.zeros(16, numpy.int32)
        experts, rows = numpy.zeros((8, 2), numpy.int32), numpy.zeros((16, 48), ml_dtypes.bfloat16)
        with kiln.device("emulator:sm_90a"):
            assert known.issuperset(
                keys_of_call("gemm", x, router.T, out_dtype="float32")
                | keys_of_call("moe_route", logits, top_k=2)
                | keys_of_call("moe_permute", x, experts, num_experts=16)
                | keys_of_call("gemm", x, up.swapaxes(1, 2), offsets=offsets, activation="swiglu")
                | keys_of_call("gemm", rows, down.swapaxes(1, 2), offsets=offsets)
                | keys_of_call("moe_unpermute", x, experts, logits[:, :2].copy())
            )
    assert not specs_of("Llama-3.1-8B", "moe_route")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (128, False, False)),
        ({"partial_rotary_factor": 0.5}, (64, False, False)),
        ({"rope_parameters": {"partial_rotary_factor": 0.75}}, (96, False, False)),
        ({"rotary_dim": 64, "use_qk_norm": True}, (64, False, True)),
        ({"rotary_dim": 64, "use_qk_norm": True, "qk_norm_type": "per_layer"}, (64, False, False)),
        ({"model_type": "qwen3"}, (128, False, True)),
        ({"model_type": "gemma3_text"}, (128, False, True)),
        ({"model_type": "glm4", "partial_rotary_factor": 0.5}, (64, True, False)),
    ],
    ids=str,
)
def test_the_rotation_of_a_config(tmp_path, changes, expected):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    model = models.load_model(str(tmp_path))[1]
    assert (model["rotary"], model["interleaved"], model["qk_norm"]) == expected


@pytest.mark.parametrize("value", [0, 1.5, "half", True])
def test_a_share_that_cannot_rotate_is_refused(tmp_path, value):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "partial_rotary_factor": value}))
    with pytest.raises(ValueError, match="'partial_rotary_factor' must be a number above 0"):
        models.load_model(str(tmp_path))


def test_plans_are_of_the_masks_of_an_engine_s_calls():
    for name, masks in (("Llama-3.1-8B", ["causal"]), ("gpt-oss-20b", ["causal", "window"])):
        assert [spec["mask"] for spec in specs_of(name, "plan_attention")] == masks
    specs = specs_of("Llama-3.1-8B", "plan_attention")
    q, cache = numpy.zeros((3, 1, 8, 128), "float16"), numpy.zeros((3, 64, 2, 128), "float16")
    used = numpy.array([64, 0, 3], numpy.int32)
    with kiln.device("emulator:sm_90a"):
        for options in (dict(causal=True), dict(num_splits=1)):
            keys = keys_of_call("plan_attention", q, cache, cache, cache_seqlens=used, **options)
            assert keys <= keys_of_specs(specs, "sm_90a")


@pytest.mark.parametrize("name", ["Qwen3-8B", "gpt-oss-20b"])
def test_what_a_served_model_writes_and_merges_is_prewarmed(name):
    """By slots and behind sequences, with rotation and without, few tokens and many."""
    model = models.load_model(name)[1]
    specs = [*specs_of(name, "append_kv", "float8_e4m3fn"), *specs_of(name, "merge_states")]
    masks = [s for s in specs_of(name, "flash_attention") if s["storage"] == "ragged"]
    known = keys_of_specs(specs + masks, "sm_90a")
    dim = model["head_dim"]
    bf16 = ml_dtypes.bfloat16
    sinks = numpy.zeros(4, bf16) if model["sinks"] else None

    def append(tokens, table, cache_dtype, weighted):
        key, query = numpy.zeros((tokens, 2, dim), bf16), numpy.zeros((tokens, 4, dim), bf16)
        caches = numpy.zeros((2, 2, 4, 2, dim), cache_dtype)
        options = {}
        if table:
            angles = numpy.zeros((9, dim // 2), table)
            places = numpy.zeros(tokens, numpy.int64)
            options = dict(query=query, cos=angles, sin=angles, positions=places)
        if weighted:
            options.update(q_weight=numpy.ones(dim, bf16), k_weight=numpy.ones(dim, bf16))
        slots = numpy.arange(tokens) % 8
        assert keys_of_call("append_kv", key, key, *caches, slots, **options) <= known

    def append_behind(table):
        caches = numpy.zeros((2, 1, 8, 2, dim), bf16)
        new, used = numpy.zeros((1, 1, 2, dim), bf16), numpy.array([3], numpy.int32)
        options = {}
        if table:
            angles = numpy.zeros((9, dim // 2), table)
            options = dict(rotary_cos=angles, rotary_sin=angles, rotary_interleaved=False)
        keys = keys_of_call(
            "flash_attention_with_kvcache", numpy.zeros((1, 1, 4, dim), bf16), *caches,
            cache_seqlens=used, k_new=new, v_new=new, causal=True, sinks=sinks, **options,
        )  # fmt: skip
        assert len(keys) > 1 and keys <= known

    def merge(tokens, sinks):
        outs, lses = numpy.zeros((2, tokens, 4, dim), bf16), numpy.zeros((2, 4, tokens), "float32")
        assert keys_of_call("merge_states", outs, lses, sinks=sinks) <= known

    with kiln.device("emulator:sm_90a"):
        for table in (None, numpy.float32, bf16):
            append_behind(table)
            for tokens in (1, 300):
                for cache_dtype in (bf16, ml_dtypes.float8_e4m3fn):
                    append(tokens, table, cache_dtype, weighted=False)
                    if table and model.get("qk_norm"):
                        append(tokens, table, cache_dtype, weighted=True)
        for tokens in (1, 300):
            merge(tokens, None)
            merge(tokens, sinks)


def test_what_a_served_model_asks_for_is_prewarmed():
    """Packed and paged, prefill and decode, whatever the lengths and the heads."""
    specs = [s for s in specs_of("Llama-3.1-8B", "flash_attention") if s["storage"] != "dense"]
    known = keys_of_specs(specs, "sm_90a")

    def calls(lens_q, len_k, heads, heads_kv):
        q = numpy.zeros((sum(lens_q), heads, 128), ml_dtypes.bfloat16)
        starts = numpy.cumsum([0, *lens_q]).astype(numpy.int32)
        used = numpy.full(len(lens_q), len_k, numpy.int32)
        pages = numpy.zeros((len_k // 16 + 1, 16, heads_kv, 128), ml_dtypes.bfloat16)
        table = numpy.zeros((len(lens_q), len(pages)), numpy.int32)
        packed = numpy.zeros((len_k * len(lens_q), heads_kv, 128), ml_dtypes.bfloat16)
        bounds = dict(max_seqlen_q=max(lens_q), max_seqlen_k=len_k, causal=True)
        ends = numpy.arange(len(lens_q) + 1, dtype=numpy.int32) * len_k
        for splits in (0, 1):
            assert known >= keys_of_call(
                "flash_attention_varlen", q, pages, pages, cu_seqlens_q=starts, seqused_k=used,
                block_table=table, num_splits=splits, **bounds,
            )  # fmt: skip
            assert known >= keys_of_call(
                "flash_attention_varlen", q, packed, packed, cu_seqlens_q=starts,
                cu_seqlens_k=ends, num_splits=splits, **bounds,
            )  # fmt: skip
        assert known >= keys_of_call(
            "flash_attention_with_kvcache", q[: len(lens_q), None], pages, pages,
            cache_seqlens=used, block_table=table,
        )  # fmt: skip

    with kiln.device("emulator:sm_90a"):
        calls((1, 1), 20, 32, 8)
        calls((4, 4), 20, 32, 8)
        calls((1, 20), 20, 32, 8)
        calls((1,) * 140, 3, 1, 1)
