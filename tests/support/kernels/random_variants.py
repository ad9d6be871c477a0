"""Masks and logits of a user's own, drawn at random: expressions, and the same in PyTorch.

A rule of MASKS or LOGITS is one comparison or formula. A Variation joins some of them, and Hooks is
a list of variations, which a call takes as its `variant`. jit.flex_attention takes the same rules
as callables.
"""

from __future__ import annotations

import dataclasses

import flex_case
import torch
import variant_case
from attention_case import AttentionCase
from kiln import jit
from reference import Position
from storage import DEVICE, DTYPES
from torch.nn.attention.flex_attention import create_block_mask


def quotient(a, b):
    """Divides as C++ does, towards zero."""
    return torch.div(a, b, rounding_mode="trunc")


def at_least_0(a):
    return torch.clamp(a, min=0)


# Expressions, and the same of a Position, a number and tables. {x} is the number.
MASKS = {
    "q >= kv": lambda at, x, of: at.q >= at.kv,
    "kv <= row + {x}": lambda at, x, of: at.kv <= at.row + x,
    "q - kv < {x}": lambda at, x, of: at.q - at.kv < x,
    "kv - q <= {x}": lambda at, x, of: at.kv - at.q <= x,
    "abs(q - kv) <= {x}": lambda at, x, of: (at.q - at.kv).abs() <= x,
    "kv < {x}": lambda at, x, of: at.kv < x,
    "kv >= {x}": lambda at, x, of: at.kv >= x,
    "row >= {x}": lambda at, x, of: at.row >= x,
    "q / {x} == kv / {x}": lambda at, x, of: quotient(at.q, x) == quotient(at.kv, x),
    "kv / {x} <= row / {x}": lambda at, x, of: quotient(at.kv, x) <= quotient(at.row, x),
    "(q - kv) % {x} == 0": lambda at, x, of: (at.q - at.kv) % x == 0,
    "kv % {x} != 1": lambda at, x, of: at.kv % x != 1,
    "(h + kv) % 2 == 0": lambda at, x, of: (at.h + at.kv) % 2 == 0,
    "kv >= 16 * b": lambda at, x, of: at.kv >= 16 * at.b,
    "kv < lengths": lambda at, x, of: at.kv < of["lengths"][at.b],
    "documents(b, max(q, 0)) == documents(b, kv)": lambda at, x, of: (
        of["documents"][at.b, at_least_0(at.q)] == of["documents"][at.b, at.kv]
    ),
    "documents(b, kv) <= {x}": lambda at, x, of: of["documents"][at.b, at.kv] <= x,
    "flags(b, kv)": lambda at, x, of: of["flags"][at.b, at.kv],
    "flags(b, row)": lambda at, x, of: of["flags"][at.b, at.row],
}
LOGITS = {
    "{x} * logit": lambda s, at, x, of: x * s,
    "logit - {x} * abs(q - kv)": lambda s, at, x, of: s - x * (at.q - at.kv).abs(),
    "logit + {x} * kv": lambda s, at, x, of: s + x * at.kv,
    "{x} * tanh(logit / {x})": lambda s, at, x, of: x * torch.tanh(s / x),
    "logit - slopes * (q - kv)": lambda s, at, x, of: s - of["slopes"][at.h] * (at.q - at.kv),
    "logit + steps(h, min(abs(q - kv), 31))": lambda s, at, x, of: (
        s + of["steps"][at.h, torch.clamp((at.q - at.kv).abs(), max=31)]
    ),
    "logit + weights(b, kv)": lambda s, at, x, of: s + of["weights"][at.b, at.kv],
    "kv % 3 == 0 ? logit - {x} : logit": lambda s, at, x, of: torch.where(at.kv % 3 == 0, s - x, s),
}
NUMBERS = (1, 2, 3, 7, 16, 33, 64, 100, 128, 200)
# A GPU's tanh is off by 2^-16.4 of the factor before it, so that larger ones would need an excuse.
FACTORS = (0.5, 0.03125, 1.25, 3.0)
# By which logits grow from key to key. Tensor cores count from a tile's first key: with more, 128
# keys cost an LSE's last digits.
SLOPES = (0.5, 0.03125)
TENSORS = {
    "lengths": "i32[b]", "documents": "i32[b, *]", "flags": "bool[b, *]", "slopes": "f32[h]",
    "steps": "f32[h, *]", "weights": "f16[b, *]",
}  # fmt: skip


def tensors_of(batch, heads, length):
    """Makes the tensors of TENSORS for calls of up to `length` queries and keys."""
    generator = torch.Generator().manual_seed(length)

    def whole(least, most, *shape):
        return torch.randint(least, most, shape, generator=generator, dtype=torch.int32)

    made = {
        "lengths": whole(0, length + 1, batch),
        "documents": (whole(0, 40, batch, length) == 0).int().cumsum(1, dtype=torch.int32),
        "flags": whole(0, 4, batch, length) != 0,
        "slopes": torch.rand(heads, generator=generator) * 0.1,
        "steps": torch.randn(heads, 32, generator=generator),
        "weights": torch.randn(batch, length, generator=generator).half(),
    }
    return {name: tensor.to(DEVICE) for name, tensor in made.items()}


@dataclasses.dataclass(frozen=True)
class Part:
    rule: str  # of MASKS or LOGITS
    number: float = 0

    def text(self, name):
        return self.rule.replace("{x}", name)


@dataclasses.dataclass(frozen=True)
class Variation:
    masks: tuple = ()
    joints: tuple = ()  # "&&" or "||" between what is left of it and the next mask
    logits: Part | None = None

    def numbered(self):
        """The parts and the names of their numbers."""
        parts = (*self.masks, self.logits) if self.logits else self.masks
        return [(part, f"x{i}") for i, part in enumerate(parts)]

    def bound(self, tensors):
        """The variant, bound to the numbers and tensors that it names."""
        texts, params, values = [], {}, {}
        for part, name in self.numbered():
            texts.append(part.text(name))
            if "{x}" in part.rule:
                params[name] = "f32" if isinstance(part.number, float) else "i32"
                values[name] = part.number
        named = [name for name in TENSORS if any(name in text for text in texts)]
        mask = f"({texts[0]})" if self.masks else ""
        for joint, text in zip(self.joints, texts[1:]):
            mask = f"({mask} {joint} ({text}))"
        variant = jit.Variant(
            "drawn", params=params, tensors={name: TENSORS[name] for name in named},
            **({"mask": mask} if mask else {}), **({"logits": texts[-1]} if self.logits else {}),
        )  # fmt: skip
        return variant(**values, **{name: tensors[name] for name in named})

    def mask(self, at, tensors):
        shown = None
        for joint, part in zip(("", *self.joints), self.masks):
            one = MASKS[part.rule](at, part.number, tensors)
            shown = one if shown is None else shown & one if joint == "&&" else shown | one
        return shown

    def score(self, s, at, tensors):
        return LOGITS[self.logits.rule](s, at, self.logits.number, tensors) if self.logits else s


@dataclasses.dataclass(frozen=True)
class Hooks:
    """A list of variations: logits in its order, masks joined. The numbers are those of the call,
    `length` the most queries or keys of a batch entry."""

    variations: tuple
    batch: int
    heads: int
    length: int

    def tensors(self):
        return tensors_of(self.batch, self.heads, self.length)

    def bound(self):
        tensors = self.tensors()
        return [variation.bound(tensors) for variation in self.variations]

    def has_masks(self):
        return any(variation.masks for variation in self.variations)

    def has_logits(self):
        return any(variation.logits for variation in self.variations)

    def mask(self, at, tensors):
        first, *others = [one.mask(at, tensors) for one in self.variations if one.masks]
        for one in others:
            first = first & one
        return first

    def score(self, s, at, tensors):
        for variation in self.variations:
            s = variation.score(s, at, tensors)
        return s

    def in_textbook(self, first_entry=0):
        """The arguments of reference.attention, whose batch begins with `first_entry`."""
        tensors = self.tensors()

        def there(at):
            return dataclasses.replace(at, b=at.b + first_entry)

        hooks = {"logits": lambda s, at: self.score(s, there(at), tensors)}
        if self.has_masks():
            hooks["mask"] = lambda at: self.mask(there(at), tensors)
        return hooks


@dataclasses.dataclass(frozen=True)
class VariantCase:
    call: AttentionCase
    hooks: Hooks

    def check(self):
        variant_case.run(self.hooks.bound(), self.call, **self.hooks.in_textbook())


@dataclasses.dataclass(frozen=True)
class FlexCase:
    """A call of jit.flex_attention, whose queries and keys count from the first."""

    hooks: Hooks
    heads_kv: int
    len_q: int
    len_kv: int
    dim: int
    dtype: str = "f16"
    block: int = 0  # of a BlockMask, which batch entries and heads share or not; 0: mask_mod=
    shared: bool = False

    def check(self):
        hooks, tensors = self.hooks, self.hooks.tensors()
        given = flex_case.inputs(
            hooks.batch, hooks.heads, self.heads_kv, self.len_q, self.len_kv, self.dim,
            DTYPES[self.dtype],
        )  # fmt: skip

        def at(b, h, q_idx, kv_idx):
            return Position(b, h, h, q_idx, q_idx, kv_idx, 0, 0)

        def score_mod(score, b, h, q_idx, kv_idx):
            return hooks.score(score, at(b, h, q_idx, kv_idx), tensors)

        def mask_mod(b, h, q_idx, kv_idx):
            return hooks.mask(at(b, h, q_idx, kv_idx), tensors)

        mask = mask_mod if hooks.has_masks() else None
        blocks = None
        if self.block:
            planes = (None, None) if self.shared else (hooks.batch, hooks.heads)
            blocks = create_block_mask(
                mask_mod, *planes, self.len_q, self.len_kv, DEVICE, self.block
            )
        flex_case.run(given, score_mod if hooks.has_logits() else None, mask, blocks)
