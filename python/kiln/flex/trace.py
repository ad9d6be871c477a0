"""Calls a score_mod or a mask_mod with symbols, and keeps what it computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import activations  # noqa: F401  enters its functions into the table
from .functions import node_of
from .nodes import Node, both, convert, negation
from .symbols import Symbol, Watch, is_number
from .tracer import Tracer

PLACES = {"b": "b", "h": "h", "q_idx": "row", "kv_idx": "kv"}  # the argument: C++'s name


@dataclass
class Traced:
    """The graphs of a pair of callables, and what they read."""

    logits: Node | None
    mask: Node | None
    tracer: Tracer


def trace(
    score_mod: Callable[..., Any] | None,
    mask_mod: Callable[..., Any] | None,
    baked: frozenset[tuple[type, Any]] = frozenset(),
    hides: bool = True,
) -> Traced:
    """Traces both callables, of which each may be None. With `hides`, what score_mod sets to -inf
    becomes a part of the mask."""
    tracer = Tracer(baked)
    logits = mask = None
    with torch.no_grad():
        if mask_mod is not None:
            mask = _call(tracer, "mask_mod", mask_mod, ())
            if not mask.is_bool:
                raise TypeError(
                    f"flex_attention: mask_mod must return a bool, got {mask.dtype}; write a "
                    "comparison"
                )
        if score_mod is not None:
            score = Symbol(tracer, Node("logit", torch.float32), "the score")
            logits = convert(_call(tracer, "score_mod", score_mod, (score,)), torch.float32)
    if logits is not None and hides:
        logits, mask = _with_hidden(logits, mask)
    if logits is not None and logits.form == "logit":
        logits = None
    if mask is not None and mask.equals(True):
        mask = None
    return Traced(logits, mask, tracer)


def _check_parameters(what: str, function: Callable[..., Any]) -> None:
    names = (*(("score",) if what == "score_mod" else ()), *PLACES)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some callables of C do not say
        return
    try:
        signature.bind(*names)
    except TypeError:
        raise TypeError(
            f"flex_attention: {what} must take ({', '.join(names)}), got one that takes {signature}"
        ) from None


def _call(tracer: Tracer, what: str, function: Callable[..., Any], first: tuple[Any, ...]) -> Node:
    _check_parameters(what, function)
    tracer.what = what
    places = [
        Symbol(tracer, Node(name, torch.int32, low=0), argument)
        for argument, name in PLACES.items()
    ]
    with Watch(tracer):
        result = function(*first, *places)
        is_scalar = isinstance(result, torch.Tensor) and result.dim() == 0
        if is_scalar or isinstance(result, Symbol) or is_number(result):
            return node_of(tracer, result)
    shape = getattr(result, "shape", None)
    got = type(result).__name__ if shape is None else f"one of shape {list(shape)}"
    raise TypeError(f"flex_attention: {what} must return a scalar tensor, got {got}")


def _with_hidden(logits: Node, mask: Node | None) -> tuple[Node, Node | None]:
    """Takes apart a score of the form where(shown, score, -inf), as a mask is cheaper: whole tiles
    are skipped."""
    while logits.form == "({0} ? {1} : {2})":
        condition, first, second = logits.args
        if second.equals(float("-inf")):
            shown, rest = condition, first
        elif first.equals(float("-inf")):
            shown, rest = negation(condition), second
        else:
            break
        if _reads_score(shown):
            break
        logits, mask = rest, shown if mask is None else both(mask, shown)
    return logits, mask


def _reads_score(root: Node) -> bool:
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if node.form == "logit":
            return True
        if node not in seen:
            seen.add(node)
            stack += node.args if node.body is None else (*node.args, node.body)
    return False
