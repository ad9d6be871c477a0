"""Kiln as an attention implementation of Hugging Face transformers 5.

    from kiln.integrations import transformers as bridge
    bridge.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="kiln")

register() adds the name to transformers' AttentionInterface and AttentionMaskInterface, and
unregister() restores what stood there. Importing this module imports neither transformers nor
PyTorch.

A model calls the mask function once in a forward pass, and the attention function in each layer. No
mask with an element for each query and key is made where numbers tell the same:

| what the mask says | what serves it |
|---|---|
| causal, sliding window or bidirectional, without padding | `jit.flash_attention`, without a mask |
| padding on the left or right, a static cache, or both | `jit.flash_attention_with_kvcache`: the number of keys and of padded ones of each sequence, on the device |
| several sequences in a row of tokens, told by `cu_seq_lens_q` and `cu_seq_lens_k` or by `position_ids` that start again | `jit.flash_attention_varlen` |
| the paged cache of continuous batching | `jit.flash_attention_varlen`, see enable_continuous_batching() |
| anything else: chunks, prefixes that see each other, holes, masks of your own, `position_bias` | `jit.flash_attention` with that mask |

Whether a two-dimensional padding mask has holes is a question that the host asks, once in a forward
pass. It is not asked where PyTorch traces or a CUDA graph is captured: there, a padding mask takes
the last row of the table, and a static cache without one takes lengths, which no one waits for.
`generate` makes its masks outside of what it compiles, so that it takes lengths either way.

Softcap, sinks, grouped-query attention and values with a head dim of their own work everywhere. A
query that is padding, or that sees no key, gives 0 or a number without meaning, never NaN.
"""  # noqa: E501

from __future__ import annotations

import inspect
from collections.abc import MutableMapping
from typing import Any

__all__ = ["enable_continuous_batching", "register", "unregister"]

# transformers takes for continuous batching only what calls itself flash.
_PAGED = "kiln_flash"
_MISSING = object()
_Entries = list[tuple[MutableMapping[str, Any], str, Any]]
_replaced: dict[str, _Entries] = {}  # what stood in the interfaces, by the names registered
_replaced_paged: _Entries = []


def register(name: str = "kiln") -> None:
    """Makes `attn_implementation=name` compute attention with Kiln, forward only.

    name  how models ask for it; "sdpa", say, replaces that implementation in all models

    Registering a name again changes nothing. Raises ImportError if transformers is missing or older
    than its version 5. Calls raise ValueError for dropout and for output_attentions, which an
    implementation without attention weights cannot serve, and what jit.flash_attention raises, for
    tensors that require grad among others.
    """
    if name in _replaced:
        return
    attentions, masks = _interfaces()
    from ._transformers_attention import attention
    from ._transformers_masks import make_mask

    if not _replaced:
        paged = [(attentions, key, attention) for key in (_PAGED, f"paged|{_PAGED}")]
        _replaced_paged.extend(_exchanged(paged))
    _replaced[name] = _exchanged([(attentions, name, attention), (masks, name, make_mask)])


def unregister(name: str = "kiln") -> None:
    """Restores what register(name) replaced; nothing if it was not registered."""
    _exchanged(_replaced.pop(name, []))
    if not _replaced:
        _exchanged(_replaced_paged)
        _replaced_paged.clear()


def enable_continuous_batching(model: Any) -> None:
    """Lets `model.generate_batch` and transformers' ContinuousBatchingManager use Kiln.

    transformers accepts there only implementations whose names it knows, or that say "flash". This
    gives the model's configs such a name, under which register() has entered Kiln.
    `model.set_attn_implementation("kiln")` takes it back, for calls without a paged cache. Raises
    RuntimeError without a register() before it.
    """
    if not _replaced:
        raise RuntimeError(
            "enable_continuous_batching: Kiln is not registered with transformers; call "
            "kiln.integrations.transformers.register() first"
        )
    attentions, _ = _interfaces()
    # In the first versions of transformers 5, those for a paged cache have names of their own.
    name = f"paged|{_PAGED}" if "paged|sdpa" in attentions else _PAGED
    for module in model.modules():
        if hasattr(getattr(module, "config", None), "_attn_implementation"):
            module.config._attn_implementation = name


def _exchanged(entries: _Entries) -> _Entries:
    """Enters functions under their keys, nothing for _MISSING; returns what was there."""
    before = [(mapping, key, mapping.get(key, _MISSING)) for mapping, key, _ in entries]
    for mapping, key, function in entries:
        if function is _MISSING:
            mapping.pop(key, None)
        else:
            mapping[key] = function
    return before


def _interfaces() -> tuple[MutableMapping[str, Any], MutableMapping[str, Any]]:
    """The names of all attention functions and mask functions in transformers."""
    try:
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
        from transformers.modeling_utils import AttentionInterface

        known = inspect.signature(sdpa_mask).parameters
    except ImportError as error:
        raise ImportError(
            "kiln.integrations.transformers: transformers 5 cannot be imported; "
            f"pip install 'transformers>=5' ({error})"
        ) from error
    if "q_length" not in known:
        raise ImportError(
            "kiln.integrations.transformers: this transformers is older than version 5, whose "
            "mask functions take q_length; pip install 'transformers>=5'"
        )
    return AttentionInterface._global_mapping, AttentionMaskInterface._global_mapping
