# Written by scripts/signatures.py from python/operations.pyi.
"""The operations. Each is one C entry; help(jit.flash_attention) is its manual."""

from ._core import (
    Variant,
    append_kv,
    flash_attention,
    flash_attention_varlen,
    flash_attention_with_kvcache,
    gemm,
    layer_norm,
    merge_states,
    plan_attention,
    rms_norm,
    scaled_dot_product_attention,
)

__all__ = [
    "Variant",
    "append_kv",
    "flash_attention",
    "flash_attention_varlen",
    "flash_attention_with_kvcache",
    "gemm",
    "layer_norm",
    "merge_states",
    "plan_attention",
    "rms_norm",
    "scaled_dot_product_attention",
]
