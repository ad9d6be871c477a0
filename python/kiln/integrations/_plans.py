"""Plans of jit.plan_attention that the layers of an engine's model share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from .. import jit

# The options of a call of attention that its plan depends on.
_OPTIONS = (
    "cu_seqlens_q",
    "max_seqlen_q",
    "seqused_k",
    "cache_seqlens",
    "max_seqlen_k",
    "block_table",
    "causal",
    "window",
    "tree_mask",
    "softcap",
    "alibi_slopes",
    "out_scale",
    "num_splits",
)


@dataclass
class _Pass:
    plan: torch.Tensor
    layers: set[int]  # those that have attended by the plan


def _group(query: Any, keys: Any, values: Any, planned: dict[str, Any]) -> Hashable:
    """Returns what calls of one step have in common that one plan serves: numbers, the layouts of
    tensors, and the tensor of lengths itself, of which there is another for cross attention."""
    options = [getattr(value, "shape", value) for value in planned.values()]
    lengths = planned.get("seqused_k", planned.get("cache_seqlens"))
    layouts = query.shape, keys.shape, keys.stride(), keys.dtype, values.shape
    return (id(lengths), layouts, *options)


class Plans:
    """The plans of a step, one for each group of layers, which the first of them makes.

    A layer that comes again begins another pass over the layers and is planned anew: lengths may
    have changed in place, or a CUDA graph is being captured, whose replays must plan their own.
    """

    def __init__(self) -> None:
        self._passes: dict[Hashable, _Pass] = {}

    def __len__(self) -> int:
        return len(self._passes)

    def clear(self) -> None:
        """Forgets the plans, since the lengths are others now."""
        self._passes.clear()

    def plan(
        self, layer: object, query: Any, keys: Any, values: Any, options: dict[str, Any]
    ) -> torch.Tensor:
        """Returns the plan of a layer's call.

        layer     the layer; told from others by its identity
        options   the keywords of the call
        """
        planned = {name: options[name] for name in _OPTIONS if name in options}
        group = _group(query, keys, values, planned)
        running = self._passes.get(group)
        if running is None or id(layer) in running.layers:
            running = _Pass(jit.plan_attention(query, keys, values, **planned), set())
            self._passes[group] = running
        running.layers.add(id(layer))
        return running.plan
