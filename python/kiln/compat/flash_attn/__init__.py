"""The functions of flash-attn, by its names, computed by Kiln.

    from kiln.compat.flash_attn import flash_attn_func

Positional parameters come in the order of flash-attn 2. Those of flash-attn 3 and 4 and of vLLM's
copy are keywords; where they differ in the name alone, both names are taken: `s_aux` and
`learnable_sink`, `block_table` and `page_table`, `return_softmax_lse` and `return_lse`.
docs/engines.md has the table. Tensors are PyTorch's.
"""

from ._dense import flash_attn_func
from ._kvcache import flash_attn_with_kvcache
from ._packed import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from ._varlen import flash_attn_varlen_func

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
