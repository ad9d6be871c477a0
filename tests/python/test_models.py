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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "hidden_size"),
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"text_config": 3}', "text_config"),
        ('{"hidden_size": "64", "num_attention_heads": 2}', "'hidden_size' must be a whole number"),
        ('{"hidden_size": 64, "num_attention_heads": 0}', "'num_attention_heads' must be"),
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
