"""The operations. Each is one C entry; help(jit.flash_attention) is its manual."""

from ._core import Variant, flash_attention, gemm

__all__ = ["Variant", "flash_attention", "gemm"]
