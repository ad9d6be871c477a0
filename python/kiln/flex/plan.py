"""From a trace to a jit.Variant, kept for calls whose callables read the same values."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from .._variant_text import variant_of_text
from .blocks_text import BLOCK_PARAMS, BLOCK_TENSORS, template_text
from .reads import Reads, reads_of
from .text import expression
from .trace import Traced, trace
from .tracer import MOST_TENSORS, TENSOR_TYPES

MOST_PLANS = 1024  # when there are more, all are forgotten
_plans: dict[Any, Plan] = {}


@dataclass
class Plan:
    """A variant, and the values of a call of it. `variant` is None where nothing is changed."""

    variant: Any
    params: dict[str, float | int]
    places: list[int]  # of the tensors among those that the callables read
    codes: list[Any]
    last: Any = None  # weak references to the tensors bound last, their memory, the bound variant

    def bound(self, tensors: list[torch.Tensor], more: dict[str, Any]) -> Any:
        """The variant of a call, with the tensors that its callables read: the one of the call
        before, if these and their memory are the same."""
        read = [tensors[place] for place in self.places]
        given = [*read, *(value for value in more.values() if isinstance(value, torch.Tensor))]
        memory = [(tensor.data_ptr(), tensor.stride()) for tensor in given]
        last = self.last
        is_same = last is not None and last[1] == memory
        if is_same and all(x() is tensor for x, tensor in zip(last[0], given, strict=True)):
            _check_grad(read)
            return last[2]
        variant = self.new_bound(read, more)
        # A bound variant keeps the memory of its tensors, which must not outlive them here.
        references = [weakref.ref(tensor, self._forget) for tensor in given]
        self.last = (references, memory, variant)
        return variant

    def new_bound(self, read: list[torch.Tensor], more: dict[str, Any]) -> Any:
        """The variant with these tensors."""
        _check_grad(read)
        if self.variant is None or not (self.params or read or more):
            return self.variant
        named = {f"t{i}": x if x.dim() else x.reshape(1) for i, x in enumerate(read)}
        return self.variant(**self.params, **named, **more)

    def _forget(self, _: Any) -> None:
        self.last = None


def _check_grad(tensors: list[torch.Tensor]) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise ValueError(
            "flex_attention: a tensor that score_mod or mask_mod reads requires grad, and Kiln "
            "computes the forward pass only; call it under torch.no_grad() or capture "
            "tensor.detach()"
        )


def bound_variant(
    score_mod: Callable[..., Any] | None,
    mask_mod: Callable[..., Any] | None,
    block_size: tuple[int, int] | None = None,
    more: dict[str, Any] | None = None,
) -> Any:
    """The bound variant of both callables, or None where they change nothing. With `block_size`,
    the blocks of a BlockMask decide where mask_mod applies, and `more` has their tables."""
    reads = reads_of(score_mod, mask_mod)
    key = (tuple(reads.key), block_size) if reads.is_stable else None
    plan = _plans.get(key) if key is not None else None
    if plan is not None:
        return plan.bound(reads.tensors, more or {})
    traced = trace(score_mod, mask_mod, reads.numbers_in_code(), hides=block_size is None)
    tensors = traced.tracer.tensors
    places = [_place(reads, tensor) for tensor in tensors]
    if key is None or traced.tracer.computes or None in places:
        once = Plan(_variant(traced, block_size), _params(traced), [], [])
        return once.new_bound(tensors, more or {})
    found = [place for place in places if place is not None]
    plan = Plan(_variant(traced, block_size), _params(traced), found, reads.codes)
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan.bound(reads.tensors, more or {})


def _place(reads: Reads, tensor: torch.Tensor) -> int | None:
    return next((i for i, known in enumerate(reads.tensors) if known is tensor), None)


def _params(traced: Traced) -> dict[str, float | int]:
    return {f"p{i}": value for i, (_, value) in enumerate(traced.tracer.params)}


def _variant(traced: Traced, block_size: tuple[int, int] | None) -> Any:
    params = {f"p{i}": kind for i, (kind, _) in enumerate(traced.tracer.params)}
    tensors = {f"t{i}": _declaration(x) for i, x in enumerate(traced.tracer.tensors)}
    most = MOST_TENSORS - (len(BLOCK_TENSORS) if block_size else 0)
    if len(tensors) > most:
        raise TypeError(
            f"flex_attention: score_mod and mask_mod read {len(tensors)} tensors, and at most "
            f"{most} are supported here; join some with torch.stack() or torch.cat()"
        )
    if block_size is not None:
        params, tensors = params | BLOCK_PARAMS, tensors | BLOCK_TENSORS
        text = template_text(traced, params, tensors, block_size)
        return variant_of_text("flex_attention", params, tensors, text)
    if traced.logits is None and traced.mask is None:
        return None
    texts = {"logits": traced.logits, "mask": traced.mask}
    written = {name: expression(node) for name, node in texts.items() if node is not None}
    return _core.Variant("flex_attention", params=params, tensors=tensors, **written)


def _declaration(tensor: torch.Tensor) -> str:
    return f"{TENSOR_TYPES[tensor.dtype]}[{', '.join(['*'] * max(tensor.dim(), 1))}]"
