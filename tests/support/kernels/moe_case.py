"""The textbook of routing, sorting by experts and adding up, in PyTorch."""

from __future__ import annotations

import torch


def route(logits, *, top_k, scoring="softmax", renormalize=True, bias=None, groups=1,
          top_groups=1, scale=1.0):  # fmt: skip
    """weights and experts, as the models' own code computes them, in float32."""
    logits = logits.float()
    scores = logits.softmax(-1) if scoring == "softmax" else logits.sigmoid()
    choices = scores if scoring == "sigmoid" or bias is not None else logits
    if bias is not None:
        choices = choices + bias.float()
    if groups > 1:
        by_group = choices.unflatten(-1, (groups, -1))
        best = min(2, by_group.shape[-1]) if bias is not None else 1
        of_groups = by_group.topk(best).values.sum(-1)
        kept = of_groups.argsort(dim=-1, descending=True, stable=True)[:, :top_groups]
        mask = torch.zeros_like(of_groups, dtype=torch.bool).scatter(1, kept, True)
        choices = by_group.masked_fill(~mask.unsqueeze(-1), -torch.inf).flatten(1)
    experts = choices.argsort(dim=-1, descending=True, stable=True)[:, :top_k]
    weights = scores.gather(1, experts)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * scale, experts.int()


def permute(x, experts, num_experts):
    """The rows, without those that are not written; where each expert's end; the inverse."""
    flat = experts.flatten().long()
    known = (flat >= 0) & (flat < num_experts)
    numbers = torch.where(known, flat, num_experts)
    order = numbers.argsort(stable=True)
    count = int(known.sum())
    inverse = torch.full_like(flat, -1, dtype=torch.int32)
    places = torch.arange(count, dtype=torch.int32, device=flat.device)
    inverse[order[:count]] = places
    rows = x[order[:count] // experts.shape[1]]
    ends = torch.bincount(numbers, minlength=num_experts + 1)[:num_experts].cumsum(0).int()
    return rows, ends, inverse.view(experts.shape)


def unpermute(y, inverse, weights):
    """In float64."""
    known = (inverse >= 0) & (inverse < y.shape[0])
    rows = y.double()[inverse.long().clamp(0, max(y.shape[0] - 1, 0))]
    rows = rows.masked_fill(~known.unsqueeze(-1), 0.0)
    if weights is not None:
        rows = rows * weights.double().masked_fill(~known, 0.0).unsqueeze(-1)
    return rows.sum(1)
