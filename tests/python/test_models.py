"""The model table and what is derived from it."""

import json

import pytest
from kiln import models


def specs_of(name, dtype="bfloat16"):
    specs = models.model_specs(models.load_model(name)[1], dtype)
    attention = [spec for spec in specs if spec["op"] == "flash_attention"]
    return attention, [spec for spec in specs if spec["op"] == "gemm"]


@pytest.mark.parametrize("name", models.known_models())
def test_the_table_is_consistent(name):
    model = models.known_models()[name]
    assert model["heads"] % model["kv_heads"] == 0
    width = model["heads"] * model["head_dim"]
    qkv = width + 2 * model["kv_heads"] * model["head_dim"]
    assert model["gemm"]["qkv"] == [qkv, model["hidden"]]
    assert model["gemm"]["o"] == [model["hidden"], width]
    if model["ffn"]:
        assert model["gemm"]["gate_up"] == [2 * model["ffn"], model["hidden"]]
        assert model["gemm"]["down"] == [model["hidden"], model["ffn"]]
    assert set(model["bias"]) <= set(model["gemm"])


def test_names_and_aliases_are_unique():
    table = models.known_models()
    names = [n.lower() for name, m in table.items() for n in (name, *m["aliases"])]
    assert len(names) == len(set(names))


def test_sinks_windows_and_softcap():
    attention, gemm = specs_of("GPT-OSS-20B")
    assert [spec["mask"] for spec in attention] == ["causal", "window"]
    assert all(spec["sinks"] == "bfloat16" and spec["head_dim"] == 64 for spec in attention)
    assert any(spec["bias"] == "bfloat16" for spec in gemm)
    attention, gemm = specs_of("gemma-2-2b", "float16")
    assert all(spec["softcap"] and spec["dtype"] == "float16" for spec in attention)
    attention, gemm = specs_of("Llama-3.1-8B")
    assert [spec["mask"] for spec in attention] == ["causal"]
    assert len(gemm) == 1  # all projections are one kernel family


def test_aliases():
    assert models.load_model("glm-4.7")[0] == "GLM-4.5"


def test_nearest_names():
    with pytest.raises(models.UnknownModel, match=r"Llama-3.1-8B.*config\.json"):
        models.load_model("llama3.1-8b")


def test_config_json_gives_what_the_table_gives(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "model_type": "qwen2",
                "hidden_size": 3584,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "intermediate_size": 18944,
                "vocab_size": 152064,
                "sliding_window": 131072,
                "use_sliding_window": False,
            }
        )
    )
    assert models.model_specs(models.load_model(str(path))[1]) == models.model_specs(
        models.load_model("Qwen2.5-7B")[1]
    )


def test_config_json_of_a_mixture_with_windows(tmp_path):
    path = tmp_path / "config.json"
    text = {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 32,
        "intermediate_size": 2880,
        "vocab_size": 201088,
        "sliding_window": 128,
        "attention_bias": True,
    }
    path.write_text(json.dumps({"text_config": text}))
    assert models.model_specs(models.load_model(str(path))[1]) == models.model_specs(
        models.load_model("gpt-oss-20b")[1]
    )


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "attention_bias": False,
}
GEMMA_2 = {
    "model_type": "gemma2",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "vocab_size": 256000,
}


@pytest.mark.parametrize(
    ("config", "name"), [(LLAMA, "Llama-3.1-8B"), (GEMMA_2, "Gemma-2-9B")], ids=["llama", "gemma2"]
)
def test_a_published_config_gives_what_the_table_gives(tmp_path, config, name):
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = models.load_model(str(tmp_path))  # the folder does as well as the file
    assert found[0] == str(tmp_path / "config.json")
    known = models.load_model(name)[1]
    assert {field: found[1][field] for field in ("head_dim", "gemm", "softcap", "sinks")} == {
        field: known[field] for field in ("head_dim", "gemm", "softcap", "sinks")
    }
    assert models.model_specs(found[1]) == models.model_specs(known)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"head_dim": None}, {"head_dim": 128}),
        ({"head_dim": 64}, {"head_dim": 64}),  # Mistral-Nemo's differs from hidden / heads
        ({"num_key_value_heads": None}, {"qkv": [3 * 4096, 4096]}),
        ({"sliding_window": 4096}, {"window": 4096}),  # Mistral 7B v0.1
        ({"sliding_window": None}, {"window": None}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"window": None}),
        ({"attention_bias": True}, {"bias": ["qkv"]}),
        ({"n_routed_experts": 64}, {"gate_up": None}),  # experts are no plain products
    ],
)
def test_what_a_config_may_leave_out_or_add(tmp_path, changes, expected):
    given = {**LLAMA, **changes}
    without_nulls = {name: value for name, value in given.items() if value is not None}
    for config in (given, without_nulls):  # absent and null mean the same
        (tmp_path / "config.json").write_text(json.dumps(config))
        model = models.load_model(str(tmp_path / "config.json"))[1]
        for field, value in expected.items():
            assert model.get(field, model["gemm"].get(field)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "hidden_size"),
        ("{", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"text_config": 3}', "text_config"),
        ('{"hidden_size": "64", "num_attention_heads": 2}', "'hidden_size' must be a whole number"),
        ('{"hidden_size": 64, "num_attention_heads": 0}', "'num_attention_heads' must be"),
        ('{"hidden_size": 2560, "model_type": "gemma3_text"}', "leaves 'num_attention_heads' to"),
        ('{"hidden_size": 100, "num_attention_heads": 3}', "has no 'head_dim', and 3 heads do not"),
        (
            '{"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 2}',
            "'num_key_value_heads' must divide the 3 attention heads, got 2",
        ),
        (
            '{"hidden_size": 7168, "num_attention_heads": 128, "kv_lora_rank": 512}',
            "latent attention",
        ),
    ],
)
def test_a_file_that_is_no_config_of_ours(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        models.load_model(str(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("model_type", ["qwen2", "qwen2_moe", "qwen2_5_vl_text", "llama"])
def test_the_second_qwen_generation_has_biases(tmp_path, model_type):
    path = tmp_path / "config.json"
    text = {"model_type": model_type, "hidden_size": 3584, "num_attention_heads": 28}
    path.write_text(json.dumps({"text_config": text}))
    biases = {spec.get("bias") for spec in models.model_specs(models.load_model(str(path))[1])} - {
        None
    }
    assert biases == (set() if model_type == "llama" else {"bfloat16"})
