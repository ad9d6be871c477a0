# Written by scripts/signatures.py from python/operations.pyi.
"""The operations. Most are one C entry each; help(jit.flash_attention) is its manual."""

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
from .flex import flex_attention

__all__ = [
    "Variant",
    "append_kv",
    "flash_attention",
    "flash_attention_varlen",
    "flash_attention_with_kvcache",
    "flex_attention",
    "gemm",
    "layer_norm",
    "merge_states",
    "plan_attention",
    "rms_norm",
    "scaled_dot_product_attention",
]
