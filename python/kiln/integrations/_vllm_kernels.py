"""The specs of the kernels that the layers of a model in vLLM need, for its warm-up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from .. import control
from . import _vllm_attention as attention

_NAMES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
}


def layer_specs(impl: attention.Impl, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Returns the specs of a layer's calls with queries of a dtype, without those of fused
    quantisation."""
    stored = attention.CACHES[impl.kv_cache_dtype]
    common = {
        "dtype": _NAMES[dtype],
        "head_dim": impl.head_size,
        "cache_dtype": None if stored in (None, dtype) else _NAMES[stored],
    }
    row_bytes = impl.head_size * (2 if common["cache_dtype"] is None else 1)
    is_parallel = impl.dcp_world_size > 1
    sinks = None if impl.sinks is None else _NAMES[impl.sinks.dtype]
    is_encoder = impl.attn_type in attention.ENCODERS
    mask = "causal" if impl.attn_type == "decoder" else "none"
    attend = {
        **common,
        "op": "flash_attention",
        "mask": "window" if impl.sliding_window[0] >= 0 else mask,
        "storage": "ragged" if is_encoder else "paged",
        "softcap": impl.logits_soft_cap > 0,
        "alibi": impl.alibi_slopes is not None,
        "sinks": None if is_parallel else sinks,
        "aligned": row_bytes % 16 == 0,  # where values begin behind keys
    }
    if is_encoder:
        return [{**attend, "cache_dtype": None, "aligned": True}]
    specs = [attend, {**common, "op": "append_kv"}]
    if not is_parallel:
        specs.append({"op": "plan_attention", "mask": attend["mask"]})
    else:  # a single causal query sees all keys, wherever they are
        specs.append({**attend, "context_parallel": True})
        if sinks:
            specs.append({"op": "merge_states", "dtype": common["dtype"], "sinks": sinks})
    return specs


def spec_texts(impls: Iterable[Any], dtype: torch.dtype) -> tuple[str, ...]:
    """Returns the specs of layers as JSON, each once, in a fixed order."""
    layers = [impl for impl in impls if isinstance(impl, attention.Impl)]
    specs = [spec for impl in layers for spec in layer_specs(impl, dtype)]
    return tuple(sorted({json.dumps(spec, sort_keys=True) for spec in specs}))


def load_specs(texts: Iterable[str]) -> None:
    """Compiles the kernels of specs that the cache does not have, and loads all of them onto the
    GPU of this thread.

    The bounds of a capture differ from those of the run before it, and may need kernels that no one
    has called, which a capture can neither compile nor load.
    """
    device = torch.cuda.current_device() if torch.cuda.is_available() else None
    with ThreadPoolExecutor() as pool:  # compiling and loading hold no lock of Python's
        for done in [pool.submit(control.preload, text, device) for text in texts]:
            done.result()
