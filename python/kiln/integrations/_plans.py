"""Plans of jit.plan_attention that the layers of an engine's model share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from .. import jit

# The options of a call of attention that its plan depends on.
_OPTIONS = frozenset(
    {
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
    }
)


@dataclass
class _Pass:
    plan: torch.Tensor
    layers: set[int]  # those that have attended by the plan


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
        self, group: Hashable, layer: object, query: Any, keys: Any, values: Any, options: Any
    ) -> torch.Tensor:
        """Returns the plan of a layer's call.

        group     what tells layers apart that need other plans, beside the tensors' layouts
        layer     the layer; told from others by its identity
        options   the keywords of the call
        """
        layouts = (query.shape, keys.shape, keys.stride(), keys.dtype, values.shape)
        running = self._passes.get((group, layouts))
        if running is None or id(layer) in running.layers:
            planned = {name: value for name, value in options.items() if name in _OPTIONS}
            running = _Pass(jit.plan_attention(query, keys, values, **planned), set())
            self._passes[group, layouts] = running
        running.layers.add(id(layer))
        return running.plan
