"""Known models, and the specs of the kernels that serving one needs."""

from __future__ import annotations

import difflib
import json
import os
import re
from typing import Any

from .json_file import read_json

_DATA = os.path.join(os.path.dirname(__file__), "data", "models.json")
_VECTOR_BYTES = 16  # a row must be a multiple of this to be loaded or stored in whole vectors
_ELEMENT_BYTES = {"float16": 2, "bfloat16": 2}
CACHE_DTYPES = ("float8_e4m3fn", "float8_e5m2", "int8")


# Classes of models that rotate neighbours, not elements of both halves of a head.
_INTERLEAVED = {"cohere", "cohere2", "ernie4_5", "glm", "glm4", "llama4", "llama4_text"}

_SIZES = ("num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "rotary_dim")

# GPT-2's names of what other models call differently.
_GPT2_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
}

# Classes of models whose attention sees all keys. Most of their configs do not say so.
_ENCODERS = {
    "albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta",
    "deberta-v2", "distilbert", "electra", "ernie", "esm", "funnel", "hubert", "layoutlm",
    "layoutlmv3", "longformer", "modernbert", "mpnet", "nomic_bert", "nystromformer",
    "rembert", "roberta", "roberta-prelayernorm", "siglip_vision_model", "vit", "wav2vec2",
    "xlm-roberta", "xlm-roberta-xl", "xmod",
}  # fmt: skip


class UnknownModel(ValueError):
    """No model of that name; the message names the nearest ones."""


def known_models() -> dict[str, dict[str, Any]]:
    """The model table by name; see docs/prewarm.md for its fields."""
    with open(_DATA, encoding="utf-8") as file:
        return json.load(file)


def load_model(name_or_path: str) -> tuple[str, dict[str, Any]]:
    """A model's name and shapes, from the table (case-insensitive, with or without the
    organisation of a hub's name) or from a config.json, named itself or by its folder."""
    if os.path.isfile(os.path.join(name_or_path, "config.json")):
        name_or_path = os.path.join(name_or_path, "config.json")
    if name_or_path.endswith(".json"):
        return name_or_path, _from_config(_read_config(name_or_path), name_or_path)
    models = known_models()
    names = {name.lower(): name for name in models}
    for name, model in models.items():
        names.update({alias.lower(): name for alias in model["aliases"]})
    wanted = name_or_path.lower()
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", wanted) and not os.path.exists(name_or_path):
        wanted = wanted.partition("/")[2]  # "meta-llama/Llama-3.1-8B"
    if wanted in names:
        return names[wanted], models[names[wanted]]
    if os.path.isdir(name_or_path):
        raise UnknownModel(
            f"the folder {name_or_path!r} has no config.json: give the folder of a model's "
            "checkpoint, or the path of its config.json"
        )
    close = difflib.get_close_matches(wanted, names, n=len(names), cutoff=0.0)
    nearest = list(dict.fromkeys(names[name] for name in close))[:3]  # an alias is no second model
    raise UnknownModel(
        f"unknown model {name_or_path!r}; name a known one, of which the nearest are "
        f"{', '.join(nearest)}, or give the path of a config.json"
    )


def model_specs(
    model: dict[str, Any], dtype: str | None = None, cache_dtype: str | None = None
) -> list[dict[str, Any]]:
    """The kernels of a model's attention, KV cache and projections, in `dtype` or else the model's.

    Those of an engine's calls are also there for a KV cache in `cache_dtype`.

    Weights are stored [N, K], but [K, N] for those that `weights_kn` names.
    """
    dtype = dtype or model.get("dtype") or "bfloat16"
    if dtype not in _ELEMENT_BYTES:
        raise ValueError(
            f"the model's config has the dtype {dtype!r}, and there are attention kernels for "
            "bfloat16 and float16 only: choose one of the two with --dtype"
        )
    specs = _attention_specs(model, dtype)
    if cache_dtype is not None:
        served = [spec for spec in specs if spec["storage"] != "dense"]
        specs += [{**spec, "cache_dtype": cache_dtype} for spec in served]
    specs += _append_specs(model, dtype, cache_dtype) + _merge_specs(model, dtype)
    specs += _plan_specs(specs)
    for name, shape in model["gemm"].items():
        is_kn = name in model.get("weights_kn", ())
        spec = _gemm_spec(shape, dtype, biased=name in model["bias"], is_kn=is_kn)
        if spec not in specs:
            specs.append(spec)
    # Rows of the table of models have no sizes of a dense layer if they are mixtures.
    if model.get("experts", model.get("ffn", 0) is None):
        specs += _expert_specs(dtype)
    return specs


def _expert_specs(dtype: str) -> list[dict[str, Any]]:
    """The kernels of a layer of experts, which depend on none of its sizes.

    They are the router's, those that sort rows and add them up, and the products of groups of rows
    with and without SwiGLU."""
    groups = {"op": "gemm", "dtype": dtype, "grouping": "offsets"}
    return [
        {"op": "gemm", "dtype": dtype, "out_dtype": "float32"},
        {"op": "moe_route", "scoring": "softmax"},
        {"op": "moe_permute"},
        {**groups, "activation": "swiglu"},
        groups,
        {"op": "moe_unpermute", "dtype": dtype},
    ]


def _attention_specs(model: dict[str, Any], dtype: str) -> list[dict[str, Any]]:
    # PyTorch's scaled_dot_product_attention, which has no softcap and no sinks, decodes without a
    # mask, and a causal mask aligned top-left is a window where the lengths differ.
    is_sdpa = not (model["softcap"] or model["sinks"])
    # A model with windowed layers has full ones too, or a release without the window.
    masks = ["none"] * is_sdpa + ["causal"] + ["window"] * bool(model["window"] or is_sdpa)
    # An engine's calls, packed and paged, are causal.
    served = ["causal"] + ["window"] * bool(model["window"])
    kinds = [("dense", mask) for mask in masks]
    kinds += [(storage, mask) for storage in ("ragged", "paged") for mask in served]
    return [
        {
            "op": "flash_attention",
            "dtype": dtype,
            "head_dim": model["head_dim"],
            "mask": mask,
            "storage": storage,
            "softcap": bool(model["softcap"]),
            "sinks": dtype if model["sinks"] else None,
        }
        for storage, mask in kinds
    ]


def _append_specs(
    model: dict[str, Any], dtype: str, cache_dtype: str | None
) -> list[dict[str, Any]]:
    """The kernels of jit.append_kv, and of k_new in flash_attention_with_kvcache.

    The engine may rotate by itself, or with either kind of tables; k_new is neither normed nor
    quantised."""
    plain: dict[str, Any] = {"op": "append_kv", "dtype": dtype, "head_dim": model["head_dim"]}
    rotary = model.get("rotary", model["head_dim"])
    rotating = {
        **plain,
        "query": True,
        "rotary": rotary,
        "interleaved": model.get("interleaved", False),
    }
    forms = [plain]
    if rotary:
        forms += [{**rotating, "rotary_dtype": table} for table in ("float32", dtype)]
    slots = list(forms)
    if rotary and model.get("qk_norm"):
        slots += [{**form, "weight": dtype} for form in forms[1:]]
    caches = [None, cache_dtype] if cache_dtype else [None]
    specs = [{**form, "cache_dtype": cache} for cache in caches for form in slots]
    return specs + [{**form, "sequences": True} for form in forms]


def _merge_specs(model: dict[str, Any], dtype: str) -> list[dict[str, Any]]:
    """The kernels of jit.merge_states: a sink counts once, so not all merges have it."""
    sinks = [None, dtype] if model["sinks"] else [None]
    return [{"op": "merge_states", "dtype": dtype, "sinks": sink} for sink in sinks]


def _plan_specs(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels of jit.plan_attention, for each mask of an engine's calls."""
    masks = dict.fromkeys(spec["mask"] for spec in specs if spec.get("storage", "dense") != "dense")
    return [{"op": "plan_attention", "mask": mask} for mask in masks]


def _access(row_bytes: int) -> str:
    """How contiguous rows of this size are accessed."""
    return "vectors" if row_bytes % _VECTOR_BYTES == 0 else "elements"


def _gemm_spec(shape: list[int], dtype: str, *, biased: bool, is_kn: bool) -> dict[str, Any]:
    columns, depth = shape
    size = _ELEMENT_BYTES[dtype]
    # Rows of [K, N] weights are as long as the output's.
    loads = {_access(depth * size), _access(columns * size)} if is_kn else {_access(depth * size)}
    return {
        "op": "gemm",
        "dtype": dtype,
        "layout": "nn" if is_kn else "nt",
        "bias": dtype if biased else None,
        "loads": "elements" if "elements" in loads else "vectors",
        "stores": _access(columns * size),
    }


def _read_config(path: str) -> dict[str, Any]:
    config = read_json(path)
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object; give the path of a model's config.json")
    return config


def _check_config(text: dict[str, Any], path: str) -> None:
    _check_decodes(text, path)
    if "hidden_size" not in text:
        raise ValueError(
            f"{path} has no field 'hidden_size' (GPT-2: 'n_embd'), so it is not the config.json of "
            "a decoder: give a model's own, or its kernels in a spec file (docs/prewarm.md)"
        )
    if "num_attention_heads" not in text:
        raise ValueError(
            f"{path} leaves 'num_attention_heads' to the model's code: add it, and 'head_dim' and "
            "'num_key_value_heads', to a copy of the file"
        )
    for field in (*_SIZES, "hidden_size", "num_attention_heads"):
        value = text.get(field)
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{path}: '{field}' must be a whole number from 1 on, got {value!r}")
    for field in ("kv_lora_rank", "qk_nope_head_dim"):
        if text.get(field):
            raise ValueError(
                f"{path} describes latent attention ('{field}'), whose heads and projections "
                "do not follow from the fields that Kiln reads; give the kernels in a spec file "
                "(docs/prewarm.md)"
            )
    _check_heads(text, path)


def _check_decodes(text: dict[str, Any], path: str) -> None:
    """Refuses an encoder, because the specs of a model are those of causal attention."""
    model_type = text.get("model_type")
    classes = [str(name) for name in text.get("architectures") or []]
    if text.get("is_encoder_decoder"):
        what = "'is_encoder_decoder' is true"
    elif model_type in _ENCODERS and not text.get("is_decoder"):
        what = f"'model_type' is {model_type!r}"
    elif any(name.endswith("ForMaskedLM") for name in classes):
        what = f"'architectures' names {', '.join(classes)}"
    elif text.get("is_causal") is False or text.get("use_bidirectional_attention") is True:
        what = "its attention is not causal"
    else:
        return
    raise ValueError(
        f"{path} does not describe a decoder ({what}): --model gives the kernels of causal "
        "attention; give this model's in a spec file, with mask none (docs/prewarm.md)"
    )


def _with_common_names(text: dict[str, Any], path: str) -> dict[str, Any]:
    """The config with GPT-2's names of sizes replaced by those of most others."""
    if "n_embd" not in text:
        return text
    model_type = text.get("model_type", "gpt2")
    if model_type != "gpt2":
        raise ValueError(
            f"{path} has GPT-2's names of sizes ('n_embd'), but its 'model_type' is "
            f"{model_type!r}, whose projections are not known; give the kernels in a spec file "
            "(docs/prewarm.md)"
        )
    renamed = {_GPT2_NAMES.get(name, name): value for name, value in text.items()}
    if not renamed.get("intermediate_size") and type(text["n_embd"]) is int:
        renamed["intermediate_size"] = 4 * text["n_embd"]
    return {**renamed, "model_type": "gpt2"}


def _check_heads(text: dict[str, Any], path: str) -> None:
    heads, kv_heads = text["num_attention_heads"], text.get("num_key_value_heads")
    if kv_heads and heads % kv_heads:
        raise ValueError(
            f"{path}: 'num_key_value_heads' must divide the {heads} attention heads, got {kv_heads}"
        )
    if not text.get("head_dim") and text["hidden_size"] % heads:
        raise ValueError(
            f"{path} has no 'head_dim', and {heads} heads do not divide 'hidden_size', "
            f"{text['hidden_size']}: add 'head_dim' to a copy of the file"
        )


def _from_config(config: dict[str, Any], path: str) -> dict[str, Any]:
    text = config.get("text_config", config)  # multimodal models nest the language model
    if not isinstance(text, dict):
        raise ValueError(f"{path}: text_config must be a JSON object, got {text!r}")
    text = _with_common_names(text, path)
    _check_config(text, path)
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    kv_heads = text.get("num_key_value_heads") or heads
    head_dim = text.get("head_dim") or hidden // heads
    model_type = text.get("model_type") or config.get("model_type") or ""
    is_gpt2, is_gpt_oss = model_type == "gpt2", model_type == "gpt_oss"
    ffn = None if _is_mixture(text) else text.get("intermediate_size")
    gemm = {"qkv": [(heads + 2 * kv_heads) * head_dim, hidden], "o": [hidden, heads * head_dim]}
    if is_gpt2:
        gemm.update(up=[ffn, hidden], down=[hidden, ffn])
    elif ffn:
        gemm.update(gate_up=[2 * ffn, hidden], down=[hidden, ffn])
    layers = list(gemm)
    if text.get("vocab_size"):
        gemm["lm_head"] = [text["vocab_size"], hidden]
    # All models of the second Qwen generation (qwen2_moe, qwen2_5_vl_text, ...) have biases, and
    # most of their configs do not say so.
    is_qwen2 = model_type.startswith("qwen2") and text.get("qkv_bias", True)
    has_bias = text.get("attention_bias") or is_qwen2
    bias = (["qkv", "o"] if is_gpt_oss else ["qkv"]) if has_bias else []
    return {
        "head_dim": head_dim,
        "gemm": gemm,
        "bias": layers if is_gpt2 else bias,
        "weights_kn": layers if is_gpt2 else [],
        "window": text.get("sliding_window") if text.get("use_sliding_window", True) else None,
        "softcap": text.get("attn_logit_softcapping"),
        "sinks": is_gpt_oss,
        "rotary": 0 if is_gpt2 else _rotary_of(text, head_dim, path),
        "interleaved": model_type in _INTERLEAVED,
        "qk_norm": _has_head_norms(text, model_type),
        "experts": _is_mixture(text),
        "dtype": _dtype_of(text) or _dtype_of(config),
    }


def _rotary_of(config: dict[str, Any], head_dim: int, path: str) -> int:
    """Counts the elements of a head that rotate."""
    if config.get("rotary_dim"):
        return int(config["rotary_dim"])
    parameters = config.get("rope_parameters")
    share = config.get("partial_rotary_factor")
    if share is None and isinstance(parameters, dict):
        share = parameters.get("partial_rotary_factor")
    if share is None:
        return head_dim
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise ValueError(
            f"{path}: 'partial_rotary_factor' must be a number above 0 and at most 1, got {share!r}"
        )
    return int(head_dim * share) // 2 * 2


def _has_head_norms(config: dict[str, Any], model_type: str) -> bool:
    """Whether queries and keys have a norm of each head before they rotate."""
    if model_type.startswith(("qwen3", "gemma3")):
        return True
    return bool(config.get("use_qk_norm")) and config.get("qk_norm_type") != "per_layer"


def _dtype_of(config: dict[str, Any]) -> str | None:
    """What newer configs call "dtype" and older ones "torch_dtype"."""
    for field in ("dtype", "torch_dtype"):
        if isinstance(config.get(field), str) and config[field] != "auto":
            return config[field].removeprefix("torch.")
    return None


def _is_mixture(config: dict[str, Any]) -> bool:
    fields = ("num_experts", "num_local_experts", "n_routed_experts")
    return any(config.get(field) for field in fields)
