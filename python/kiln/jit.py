# Written by scripts/signatures.py from python/operations.pyi.
"""The operations. Most are one C entry each; help(jit.flash_attention) is its manual."""

from ._core import (
    Epilogue,
    Variant,
    append_kv,
    flash_attention,
    flash_attention_varlen,
    flash_attention_with_kvcache,
    gemm,
    layer_norm,
    merge_states,
    moe_permute,
    moe_route,
    moe_unpermute,
    plan_attention,
    quantize,
    rms_norm,
    scaled_dot_product_attention,
)
from .flex import flex_attention
from .grouped_mm import grouped_mm

__all__ = [
    "Epilogue",
    "Variant",
    "append_kv",
    "flash_attention",
    "flash_attention_varlen",
    "flash_attention_with_kvcache",
    "flex_attention",
    "gemm",
    "grouped_mm",
    "layer_norm",
    "merge_states",
    "moe_permute",
    "moe_route",
    "moe_unpermute",
    "plan_attention",
    "quantize",
    "rms_norm",
    "scaled_dot_product_attention",
]
