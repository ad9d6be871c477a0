"""The model table and what is derived from it."""

import collections
import json
import pathlib

import kiln
import numpy
import pytest
from kernel_keys import keys_of_call, keys_of_specs
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


def test_a_quantised_cache_adds_kernels_of_the_engines_calls():
    model = models.load_model("llama-3.1-8b")[1]
    plain = models.model_specs(model)
    added = [s for s in models.model_specs(model, None, "float8_e4m3fn") if s not in plain]
    assert {spec["cache_dtype"] for spec in added} == {"float8_e4m3fn"}
    attention = [spec for spec in added if spec["op"] == "flash_attention"]
    assert {spec["storage"] for spec in attention} == {"ragged", "paged"}
    assert {spec["mask"] for spec in attention} == {"causal"}


def test_names_and_aliases_are_unique():
    table = models.known_models()
    names = [n.lower() for name, m in table.items() for n in (name, *m["aliases"])]
    assert len(names) == len(set(names))


def test_sinks_windows_and_softcap():
    attention, gemm = specs_of("GPT-OSS-20B")
    served = [(storage, mask) for storage in ("ragged", "paged") for mask in ("causal", "window")]
    assert [(spec["storage"], spec["mask"]) for spec in attention] == [
        ("dense", "causal"), ("dense", "window"), *served
    ]  # fmt: skip
    assert all(spec["sinks"] == "bfloat16" and spec["head_dim"] == 64 for spec in attention)
    assert any(spec["bias"] == "bfloat16" for spec in gemm)
    attention, gemm = specs_of("gemma-2-2b", "float16")
    assert all(spec["softcap"] and spec["dtype"] == "float16" for spec in attention)
    attention, gemm = specs_of("Llama-3.1-8B")
    dense = [spec["mask"] for spec in attention if spec["storage"] == "dense"]
    assert dense == ["none", "causal", "window"]
    assert [s["mask"] for s in attention if s["storage"] == "paged"] == ["causal"]
    assert len(gemm) == 1  # all projections are one kernel family


def test_aliases():
    assert models.load_model("glm-4.7")[0] == "GLM-4.5"


def test_nearest_names():
    with pytest.raises(models.UnknownModel, match=r"Llama-3.1-8B.*config\.json"):
        models.load_model("llama3.1-8b")
    with pytest.raises(models.UnknownModel, match=r"nearest are GLM-4\.5, GLM-4\.5-Air, Llama"):
        models.load_model("glm-4.8")  # near to two aliases of GLM-4.5


def test_names_of_a_hub(tmp_path, monkeypatch):
    assert models.load_model("meta-llama/Llama-3.1-8B")[0] == "Llama-3.1-8B"
    assert models.load_model("qwen/qwen3-8b")[0] == "Qwen3-8B"
    for path in ("./Qwen3-8B", "/models/Qwen3-8B", "a/b/Qwen3-8B"):
        with pytest.raises(models.UnknownModel, match="unknown model"):
            models.load_model(path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(models.UnknownModel, match=r"has no config\.json"):
        models.load_model("Qwen/Qwen3-8B")


def test_the_numbers_of_the_page():
    page = pathlib.Path(__file__).parents[2] / "docs/prewarm.md"
    specs = models.model_specs(models.load_model("Llama-3.1-8B")[1])
    kernels = kiln.prewarm(specs, "sm_90a", check=True)["kernels"]
    count = collections.Counter(kernel["what"].split()[0] for kernel in kernels)
    assert (
        f"For Llama-3.1-8B on sm_90a these are {len(kernels)} kernels: "
        f"{count['flash_attention']} of attention, one that copies keys, "
        f"{count['append_kv']} that append, "
        f"{count['merge_states']} that merge, two that plan, {count['gemm']} products."
    ) in page.read_text(encoding="utf-8")
    assert count["plan_attention"] == 2 and count["copy_keys"] == 1


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
        ('{"n_embd": 64, "n_head": 2, "model_type": "gptj"}', "'gptj', whose projections are not"),
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
def test_a_file_that_is_not_a_decoder_s_config(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        models.load_model(str(path))
    assert str(path) in str(error.value)


def specs_of_config(tmp_path, config, dtype=None):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return models.model_specs(models.load_model(str(tmp_path))[1], dtype)


@pytest.mark.parametrize(
    ("fields", "flag", "expected"),
    [
        ({}, None, "bfloat16"),
        ({"torch_dtype": "float16"}, None, "float16"),
        ({"dtype": "float16"}, None, "float16"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, None, "float16"),  # the newer name
        ({"torch_dtype": "torch.float16"}, None, "float16"),
        ({"torch_dtype": "auto"}, None, "bfloat16"),
        ({"torch_dtype": None}, None, "bfloat16"),
        ({"torch_dtype": "float16"}, "bfloat16", "bfloat16"),  # --dtype decides
        ({"torch_dtype": "float32"}, "float16", "float16"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_the_dtype_of_a_config(tmp_path, fields, flag, expected, nested):
    config = {"text_config": LLAMA, **fields} if nested else {**LLAMA, **fields}
    specs = specs_of_config(tmp_path, config, flag)
    dtypes = {spec["dtype"] for spec in specs if spec["op"] != "plan_attention"}  # has none
    assert dtypes == {expected}


def test_a_dtype_without_kernels_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has the dtype 'float32'.* with --dtype"):
        specs_of_config(tmp_path, {**LLAMA, "torch_dtype": "float32"})


BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (BERT, "'model_type' is 'bert'"),
        ({**BERT, "model_type": "newbert"}, "'architectures' names BertForMaskedLM"),
        ({**LLAMA, "is_encoder_decoder": True}, "'is_encoder_decoder' is true"),
        ({**LLAMA, "is_causal": False}, "its attention is not causal"),
        ({**LLAMA, "use_bidirectional_attention": True}, "its attention is not causal"),
    ],
)
def test_an_encoder_is_refused(tmp_path, config, reason):
    with pytest.raises(ValueError) as error:
        specs_of_config(tmp_path, config)
    assert f"does not describe a decoder ({reason})" in str(error.value)


GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_inner": None,
    "vocab_size": 50257,
}


@pytest.mark.parametrize(("inner", "ffn"), [(None, 3072), (1000, 1000)])
def test_gpt2_s_names(tmp_path, inner, ffn):
    (tmp_path / "config.json").write_text(json.dumps({**GPT2, "n_inner": inner}))
    model = models.load_model(str(tmp_path))[1]
    assert model["head_dim"] == 64
    assert model["gemm"] == {
        "qkv": [2304, 768],
        "o": [768, 768],
        "up": [ffn, 768],
        "down": [768, ffn],
        "lm_head": [50257, 768],
    }
    gemm = [spec for spec in models.model_specs(model) if spec["op"] == "gemm"]
    # GPT-2 keeps its weights as [in, out], with a bias each, but for the head of the vocabulary.
    layouts = {(spec["layout"], spec["bias"]) for spec in gemm}
    assert layouts == {("nn", "bfloat16"), ("nt", None)}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gpt2_s_kernels_are_those_of_its_calls(tmp_path, arch):
    specs = specs_of_config(tmp_path, GPT2, "float16")
    keys = keys_of_specs(specs, arch)
    x, bias = numpy.zeros((8, 768), numpy.float16), numpy.zeros(2304, numpy.float16)
    weight, head = (numpy.zeros(shape, numpy.float16) for shape in ((768, 2304), (50257, 768)))
    with kiln.device(f"emulator:{arch}"):
        assert keys_of_call("gemm", x, weight, bias=bias) <= keys
        assert keys_of_call("gemm", x, head.T) <= keys
        assert not keys_of_call("gemm", x, weight) <= keys  # has no bias


def test_pytorch_s_form_asks_for_the_kernels_of_a_model(tmp_path):
    """Decoding without a mask, and causal masks of different lengths, of fewer and more queries."""
    specs = specs_of_config(tmp_path, {**LLAMA, "head_dim": 128, "torch_dtype": "float16"})
    # That form knows no lengths of sequences and no pages.
    attention = [
        spec for spec in specs if spec["op"] == "flash_attention" and spec["storage"] == "dense"
    ]
    known = keys_of_specs(attention, "sm_90a")
    key = numpy.zeros((1, 1, 40, 128), numpy.float16)

    def keys(*tensors, **options):
        return keys_of_call("scaled_dot_product_attention", *tensors, **options)

    with kiln.device("emulator:sm_90a"):
        assert keys(key[:, :, :1], key, key) <= known
        for queries in (1, 20, 40):
            query = key[:, :, :queries]
            assert keys(query, key, key, is_causal=True) <= known
            assert keys(key, query, query, is_causal=True) <= known


@pytest.mark.parametrize("model_type", ["qwen2", "qwen2_moe", "qwen2_5_vl_text", "llama"])
def test_the_second_qwen_generation_has_biases(tmp_path, model_type):
    path = tmp_path / "config.json"
    text = {"model_type": model_type, "hidden_size": 3584, "num_attention_heads": 28}
    path.write_text(json.dumps({"text_config": text}))
    biases = {spec.get("bias") for spec in models.model_specs(models.load_model(str(path))[1])} - {
        None
    }
    assert biases == (set() if model_type == "llama" else {"bfloat16"})
