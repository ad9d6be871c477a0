"""The rendered source of a few kernels, word for word: a diff shows every change of a kernel.

After a wanted change: pytest tests/compile/test_golden.py --update-golden
"""

import pathlib

import kiln
import pytest

GOLDEN = pathlib.Path(__file__).parent / "golden"
ATTENTION = {"op": "flash_attention", "dtype": "bfloat16", "head_dim": 128, "splits": False,
             "warps": 4}  # fmt: skip
GEMM = {"op": "gemm", "dtype": "bfloat16", "layout": "nt", "block_m": 128, "block_n": 128,
        "stages": 3}  # fmt: skip
NORM = {"op": "rms_norm", "weight": "bfloat16"}
SPECS = {
    "attention_d128_causal": {**ATTENTION, "mask": "causal"},
    "attention_d64_decode": {
        **ATTENTION, "dtype": "float16", "head_dim": 64, "mask": "none", "splits": True,
        "block_q": 16,
    },
    "attention_all_options": {
        **ATTENTION, "head_dim": 192, "head_dim_v": 128, "mask": "window",
        "softcap": True, "alibi": True, "sinks": "bfloat16", "attn_mask": "float32",
        "aligned": False,
    },
    "attention_paged": {
        **ATTENTION, "mask": "causal", "storage": "paged", "splits": True, "block_q": 16,
    },
    "attention_e4m3_cache": {
        **ATTENTION, "mask": "causal", "storage": "paged", "splits": True, "block_q": 16,
        "block_kv": 32, "stages": 3, "cache_dtype": "float8_e4m3fn",
    },
    "attention_bytes": {
        "op": "flash_attention", "dtype": "bfloat16", "head_dim": 128, "mask": "causal",
        "storage": "ragged", "cache_dtype": "float8_e4m3fn", "quantized_queries": True,
        "block_q": 192,
    },
    "attention_e4m3_output": {
        **ATTENTION, "mask": "causal", "storage": "ragged", "splits": True, "block_q": 16,
        "out_dtype": "float8_e4m3fn",
    },
    "attention_sm90": {
        "op": "flash_attention", "dtype": "bfloat16", "head_dim": 128, "mask": "causal",
        "block_q": 192, "splits": False,
    },
    "attention_sm90_split": {
        "op": "flash_attention", "dtype": "float16", "head_dim": 64, "mask": "none",
        "block_q": 192, "splits": True,
    },
    "attention_sm90_shares": {
        "op": "flash_attention", "dtype": "bfloat16", "head_dim": 128, "mask": "causal",
        "storage": "paged", "block_q": 128, "splits": True, "stages": 3,
    },
    "attention_variant": {
        **ATTENTION, "mask": "causal",
        "variant": {
            "name": "biased", "params": [["strength", "f32"], ["reach", "i32"]],
            "tensors": [["bias", "bf16[h, row, kv]"]],
            "logits": "logit + strength * bias", "mask": "q - kv < reach",
        },
    },
    "attention_variants": {
        **ATTENTION,
        "variant": [
            {"name": "t5", "tensors": [["bucket", "i64[*]"]], "logits": "logit + bucket(kv - q)"},
            {
                "name": "even_of_document", "tensors": [["doc", "i32[*, *]"]],
                "mask": "kv % 2 == 0 && doc(b, q) == doc(b, kv)",
            },
        ],
    },
    "gemm_bf16_nt": GEMM,
    "gemm_tf32_tn_unaligned": {
        **GEMM, "dtype": "float32", "layout": "tn", "loads": "elements",
        "stores": "elements",
    },
    "gemm_f16_half_sums_epilogue": {
        **GEMM, "dtype": "float16", "out_dtype": "float32", "accumulator": "float16",
        "layout": "nn", "bias": "float32", "residual": "bfloat16", "activation": "gelu_tanh",
    },
    "gemm_f8_scales": {
        **GEMM, "dtype": "float8_e4m3fn", "dtype_b": "float8_e5m2", "stages": 6,
        "scale_a": "vector", "scale_b": "tensor",
    },
    "gemm_f8_blocks": {
        **GEMM, "dtype": "float8_e4m3fn", "block_n": 160, "stages": 5, "scale_a": "groups",
        "scale_b": "blocks",
    },
    "gemm_gated": {
        **GEMM, "block_n": 192, "stages": 4, "activation": "swiglu", "gate": "interleaved",
        "bias": "float32",
    },
    "rms_norm_stages": {**NORM, "threads": 128, "vectors": 4, "rows_per_block": 1, "cluster": 1},
    "rms_norm_partial": {**NORM, "residual": True, "launch": 1},
    "rms_norm_apply": {**NORM, "residual": True, "launch": 2},
    "layer_norm_cluster": {
        **NORM, "op": "layer_norm", "dtype": "float16", "out_dtype": "float32", "bias": "float32",
        "activation": "gelu", "cluster": 4,
    },
    "merge_states": {
        "op": "merge_states", "dtype": "float16", "out_dtype": "float32", "sinks": "bfloat16",
        "lanes": 16, "vectors": 2,
    },
    "append_kv": {"op": "append_kv", "rows": 1},
    "append_kv_fused": {
        "op": "append_kv", "dtype": "float16", "cache_dtype": "float8_e4m3fn", "head_dim": 192,
        "head_dim_v": 128, "query": True, "weight": "bfloat16", "rotary": 64, "interleaved": True,
        "rotary_dtype": "float16", "rows": 4,
    },
    "moe_route": {"op": "moe_route", "scoring": "sigmoid", "bias": "bfloat16", "experts": 256},
    "moe_count": {"op": "moe_permute", "launch": 1},
    "moe_permute": {"op": "moe_permute", "index": "int64", "access": 8, "launch": 2},
    "moe_unpermute": {"op": "moe_unpermute", "out_dtype": "float32"},
    "quantize": {
        "op": "quantize", "dtype": "float16", "out_dtype": "float8_e5m2", "activation": "swiglu",
        "scale_power_of_two": True, "counts": True, "lanes": 8,
    },
    "plan_attention": {"op": "plan_attention", "mask": "window", "context_parallel": True},
    "plan_attention_pieces": {"op": "plan_attention", "mask": "causal", "pieces": True},
    "bound_elements": {"op": "bound_elements"},
    "copy_keys": {"op": "copy_keys", "cache_dtype": "int8"},
    "copy_keys_halves": {"op": "copy_keys"},
    "attention_sm90_widened": {
        "op": "flash_attention", "dtype": "bfloat16", "head_dim": 64, "mask": "causal",
        "storage": "ragged", "widened_ahead": True, "block_q": 192, "splits": False,
        "grouped": False, "block_kv": 128,
    },
    "gemm_expression": {**GEMM, "bias": "bfloat16", "epilogue": "acc * bias + 0.5f * row"},
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_rendered_source(name, request):
    (kernel,) = kiln.inspect(SPECS[name], "sm_90", compile=False)
    path = GOLDEN / f"{name}.cu"
    if request.config.getoption("--update-golden", False):
        path.write_text(kernel["source"])
    assert path.read_text() == kernel["source"], f"{path.name} differs; see this file's head"


def test_every_golden_file_has_its_test():
    assert {path.stem for path in GOLDEN.glob("*.cu")} == set(SPECS)
