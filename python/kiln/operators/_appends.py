"""flash_attention_with_kvcache with new keys as PyTorch operators, such as
torch.ops.kiln.flash_attention_with_kvcache_append.

They write to the caches and return results, for which their schemas differ from those of the calls
that only read. Their kernels are in Python.
"""

from __future__ import annotations

from typing import Any

import torch

from ._schemas import SCHEMAS, Schema
from ._values import check
from ._variants import VARIANT_SCHEMAS, call_one_of, parts

_OP = "flash_attention_with_kvcache"
_ARGUMENTS = (
    "*, Tensor? k_new=None, Tensor? v_new=None, Tensor? rotary_cos=None, "
    "Tensor? rotary_sin=None, bool rotary_interleaved=True, "
)


def _with_append(schema: Schema) -> Schema:
    text = schema.text.replace("*, ", _ARGUMENTS, 1)
    for letter, cache in (("c", "k_cache"), ("d", "v_cache")):
        text = text.replace(f"Tensor {cache}", f"Tensor({letter}!) {cache}", 1)
    return schema._replace(name=schema.name.replace(_OP, f"{_OP}_append", 1), text=text)


APPEND_SCHEMAS = tuple(_with_append(s) for s in SCHEMAS if s.operation == _OP)
APPEND_VARIANT_SCHEMAS = tuple(_with_append(s) for s in VARIANT_SCHEMAS if s.operation == _OP)


def call(
    inputs: tuple[Any, ...], new: dict[str, Any], variant: Any, options: dict[str, Any], out: Any,
    lse: Any, return_lse: Any,
) -> Any:  # fmt: skip
    """Calls the operator that appends `new` (k_new, v_new and how they are rotated) and attends."""
    check(_OP, {name: x for name, x in new.items() if name != "rotary_interleaved"})
    options = {**options, **new}
    ops = torch.ops.kiln
    if variant is None:
        operators = (
            ops.flash_attention_with_kvcache_append,
            ops.flash_attention_with_kvcache_append_lse,
            ops.flash_attention_with_kvcache_append_out,
        )
    else:
        options.update(parts(_OP, variant))
        operators = (
            ops.flash_attention_with_kvcache_append_variant,
            ops.flash_attention_with_kvcache_append_variant_lse,
            ops.flash_attention_with_kvcache_append_variant_out,
        )
    return call_one_of(operators, _OP, inputs, options, out, lse, return_lse)
