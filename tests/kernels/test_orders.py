"""Nothing that a launch leaves open may reach the result: which block is first or, of those that
share a tile, last, how warps take turns, when a copy lands."""

import dataclasses
import itertools

import grid
import pytest
import torch
from attention_case import AttentionCase
from gemm_case import GemmCase

pytestmark = pytest.mark.emulated

ORDERS = [grid.Order(*pair) for pair in itertools.product(("late", "eager"), (0, 1, 2, 12345))]


def results_of(case):
    """What the case gives in every order, judged each time."""
    for order in ORDERS:
        with order.on():
            result = case.check()
        yield result if isinstance(result, tuple) else (result,)


def check_same_bits(case):
    first, *others = results_of(case)
    for result in others:
        assert all(torch.equal(x, y) for x, y in zip(first, result))


def test_attention():
    check_same_bits(
        AttentionCase(len_q=150, len_kv=200, heads=4, heads_kv=2, causal=True, softcap=9.0)
    )


@pytest.mark.parametrize("shape", [dict(len_q=1, heads=6), dict(len_q=20, heads=6)], ids=str)
def test_attention_whose_keys_are_split(shape):
    case = AttentionCase(len_kv=1100, heads_kv=2, **shape)
    with ORDERS[0].on():
        assert case.explain()["splits"] > 1
    check_same_bits(case)


GEMM = GemmCase(m=150, n=140, k=300, bias="f32", activation="silu")


def test_gemm():
    check_same_bits(GEMM)


def test_gemm_whose_k_is_split():
    case = dataclasses.replace(GEMM, m=20, n=72, k=4608)
    with ORDERS[0].on():
        assert case.explain()["splits"] > 1
    check_same_bits(case)


def test_gemm_of_8_bit_floats():
    case = GemmCase(dtype="e4m3", storage="guarded", m=70, n=130, k=200, out_dtype="f32")
    check_same_bits(case)
