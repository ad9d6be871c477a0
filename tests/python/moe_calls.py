"""Calls of the operators of mixtures of experts and of quantising, and what they refuse."""

import torch


def half(*shape):
    return torch.randn(shape).half()


def quantizing(**options):
    return {"x": half(5, 64), "group": 16, **options}


def routing(**options):
    return {"logits": torch.rand(5, 16), "top_k": 3, **options}


def permuting(**options):
    return {"x": half(5, 24), "experts": torch.tensor([[0, 2], [3, 1], [3, 0], [2, 3], [1, 0]]),
            "num_experts": 4, **options}  # fmt: skip


def unpermuting(**options):
    return {"y": half(6, 24), "inverse": torch.tensor([[0, 5], [-1, 2], [3, 3]]).int(),
            "weights": torch.rand(3, 2), **options}  # fmt: skip


CALLS = [
    ("quantize", quantizing()),
    ("quantize", quantizing(group=None, activation="swiglu", out_dtype=torch.float8_e5m2)),
    ("quantize", quantizing(scale_layout="column", x=half(2, 3, 64), scale_power_of_two=True,
                            counts=torch.tensor([3, 3]).int())),
    ("quantize_out", quantizing(out=torch.zeros(5, 64, dtype=torch.int8),
                                scale_out=torch.zeros(5, 4))),
    ("moe_route", routing()),
    ("moe_route", routing(scoring="sigmoid", bias=torch.rand(16), groups=4, top_groups=2,
                          scale=2.5, renormalize=False)),
    ("moe_route_out", routing(weights=torch.zeros(5, 3), experts=torch.zeros(5, 3).int())),
    ("moe_permute", permuting()),
    ("moe_permute_out", permuting(experts=torch.tensor([[4, 0]] * 5), out=half(10, 24),
                                  offsets=torch.zeros(4).int(),
                                  inverse=torch.zeros(5, 2).int())),
    ("moe_unpermute", unpermuting()),
    ("moe_unpermute", unpermuting(weights=None, out_dtype=torch.float32)),
    ("moe_unpermute_out", unpermuting(out=torch.zeros(3, 24))),
    # Refusals.
    ("quantize", quantizing(group=0)),
    ("quantize", quantizing(activation="silu")),
    ("quantize", quantizing(scale_layout="m")),
    ("quantize", quantizing(out_dtype=torch.float16)),
    ("quantize", quantizing(out_dtype=torch.int8)),
    ("quantize", quantizing(counts=torch.tensor([3]).int())),
    ("moe_route", routing(top_k=0)),
    ("moe_route", routing(scoring="relu")),
    ("moe_route", routing(groups=3)),
    ("moe_route", routing(logits=torch.rand(16))),
    ("moe_route_out", routing(weights=torch.zeros(5, 2), experts=torch.zeros(5, 2).int())),
    ("moe_permute", permuting(num_experts=513)),
    ("moe_permute", permuting(experts=torch.rand(5, 2))),
    ("moe_unpermute", unpermuting(inverse=torch.zeros(3, 2))),
    ("moe_unpermute", unpermuting(out_dtype=torch.float8_e5m2)),
]  # fmt: skip
