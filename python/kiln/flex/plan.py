"""From a trace to a jit.Variant, kept for calls whose callables read the same values."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from .._variant_text import variant_of_text
from .blocks import NO_TABLES, Tables
from .blocks_text import BLOCK_PARAMS, BLOCK_TENSORS, template_text
from .nodes import Node
from .reads import Reads, reads_of
from .text import expression, slots
from .trace import Traced, trace
from .tracer import MOST_TENSORS, TENSOR_TYPES

MOST_PLANS = 1024  # when there are more, all are forgotten
_plans: dict[Any, Plan] = {}


@dataclass
class Part:
    """A variant, and which of a plan's values it takes."""

    variant: Any
    names: list[str]


@dataclass
class Bound:
    """A bound variant, and what it was bound to: weak references to the tensors that callables
    read, their memory, and a weak reference to a BlockMask's tables."""

    read: list[weakref.ref[torch.Tensor]]
    memory: list[Any]
    tables: weakref.ref[Tables]
    ends: list[Any]  # weak references that tell of the end of any tensor
    variant: Any

    def is_of(self, read: list[torch.Tensor], tables: Tables) -> bool:
        if self.tables() is not tables:
            return False
        for known, memory, tensor in zip(self.read, self.memory, read, strict=True):
            if known() is not tensor or memory_of(tensor) != memory:
                return False
        return True


@dataclass
class Plan:
    """Variants, and the values of a call of them. There are none where nothing is changed."""

    parts: list[Part]
    params: dict[str, float | int]
    places: list[int]  # of the tensors among those that the callables read
    codes: list[Any]
    last: Bound | None = None

    def bound(self, tensors: list[torch.Tensor], tables: Tables) -> Any:
        """The variant of a call, with the tensors that its callables read: the one of the call
        before, if these and their memory are the same."""
        read = [tensors[place] for place in self.places]
        last = self.last
        if last is not None and last.is_of(read, tables):
            check_grad(read)
            return last.variant
        variant = self.new_bound(read, tables)
        # A bound variant keeps the memory of its tensors, which must not outlive them here.
        given = [*read, *(value for value in tables.values() if isinstance(value, torch.Tensor))]
        ends = [weakref.ref(tensor, self._forget) for tensor in given]
        memory = [memory_of(tensor) for tensor in read]
        self.last = Bound(ends[: len(read)], memory, weakref.ref(tables), ends, variant)
        return variant

    def new_bound(self, read: list[torch.Tensor], tables: Tables) -> Any:
        """The variant with these tensors."""
        check_grad(read)
        values: dict[str, Any] = {**self.params, **tables}
        values.update((f"t{i}", x if x.dim() else x.reshape(1)) for i, x in enumerate(read))
        bound = [
            part.variant(**{name: values[name] for name in part.names})
            if part.names
            else part.variant
            for part in self.parts
        ]
        return bound if len(bound) > 1 else bound[0] if bound else None

    def _forget(self, _: Any) -> None:
        self.last = None


def memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where the elements of a tensor are."""
    return tensor.data_ptr(), tensor.stride()


def check_grad(tensors: list[torch.Tensor]) -> None:
    """Refuses tensors that callables read and that require a gradient."""
    if tensors and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise ValueError(
            "flex_attention: a tensor that score_mod or mask_mod reads requires grad, and Kiln "
            "computes the forward pass only; call it under torch.no_grad() or capture "
            "tensor.detach()"
        )


def bound_variant(
    score_mod: Callable[..., Any] | None,
    mask_mod: Callable[..., Any] | None,
    block_size: tuple[int, int] | None = None,
    tables: Tables = NO_TABLES,
) -> Any:
    """The bound variant of both callables, or None where they change nothing. With `block_size`,
    the blocks of a BlockMask decide where mask_mod applies: `tables` are theirs."""
    if score_mod is None and mask_mod is None and block_size is None:
        return None
    reads = reads_of(score_mod, mask_mod)
    key = (tuple(reads.key), block_size) if reads.is_stable else None
    plan = kept_plan(reads, block_size)
    if plan is not None:
        return plan.bound(reads.tensors, tables)
    traced = trace(score_mod, mask_mod, reads.numbers_in_code(), hides=block_size is None)
    tensors = traced.tracer.tensors
    places = [_place(reads, tensor) for tensor in tensors]
    if key is None or traced.tracer.computes or None in places:
        once = Plan(_parts(traced, block_size), _params(traced), [], [])
        return once.new_bound(tensors, tables)
    found = [place for place in places if place is not None]
    plan = Plan(_parts(traced, block_size), _params(traced), found, reads.codes)
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan.bound(reads.tensors, tables)


def kept_plan(reads: Reads, block_size: tuple[int, int] | None) -> Plan | None:
    """The plan of callables that read these values, if one has been made."""
    return _plans.get((tuple(reads.key), block_size)) if reads.is_stable else None


def _place(reads: Reads, tensor: torch.Tensor) -> int | None:
    return next((i for i, known in enumerate(reads.tensors) if known is tensor), None)


def _params(traced: Traced) -> dict[str, float | int]:
    return {f"p{i}": value for i, (_, value) in enumerate(traced.tracer.params)}


def _parts(traced: Traced, block_size: tuple[int, int] | None) -> list[Part]:
    most = MOST_TENSORS - (len(BLOCK_TENSORS) if block_size else 0)
    if len(traced.tracer.tensors) > most:
        raise TypeError(
            f"flex_attention: score_mod and mask_mod read {len(traced.tracer.tensors)} tensors, "
            f"and at most {most} are supported here; join some with torch.stack() or torch.cat()"
        )
    if block_size is None:
        texts = {"logits": traced.logits, "mask": traced.mask}
        return _expressions(traced, texts)
    # The scores are an expression of their own, from which Kiln can tell more than from a file.
    params, tensors = _declared(traced, traced.mask)
    params, tensors = params | BLOCK_PARAMS, tensors | BLOCK_TENSORS
    text = template_text(tensors, block_size)
    mask = "true" if traced.mask is None else expression(traced.mask)
    blocks = variant_of_text("flex_attention", params, tensors, text, mask)
    return [*_expressions(traced, {"logits": traced.logits}), Part(blocks, [*params, *tensors])]


def _expressions(traced: Traced, texts: dict[str, Node | None]) -> list[Part]:
    given = {name: node for name, node in texts.items() if node is not None}
    if not given:
        return []
    params, tensors = _declared(traced, *given.values())
    written = {name: expression(node) for name, node in given.items()}
    variant = _core.Variant("flex_attention", params=params, tensors=tensors, **written)
    return [Part(variant, [*params, *tensors])]


def _declared(traced: Traced, *roots: Node | None) -> tuple[dict[str, str], dict[str, str]]:
    """The parameters and the tensors that some of the graphs read."""
    read = [slots(root) for root in roots if root is not None]
    params, tensors = (set[int]().union(*(both[i] for both in read)) for i in (0, 1))
    return (
        {f"p{i}": kind for i, (kind, _) in enumerate(traced.tracer.params) if i in params},
        {f"t{i}": _declaration(x) for i, x in enumerate(traced.tracer.tensors) if i in tensors},
    )


def _declaration(tensor: torch.Tensor) -> str:
    return f"{TENSOR_TYPES[tensor.dtype]}[{', '.join(['*'] * max(tensor.dim(), 1))}]"
