"""GEMM with gated activations: SwiGLU and both GeGLUs."""

import dataclasses

import pytest
from gemm_case import GemmCase
from gemm_gated_bodies import (  # noqa: F401
    GATES,
    groups,
    test_columns_come_in_pairs,
    test_no_columns_and_no_k,
    test_the_two_places_of_gates_agree,
    test_what_is_refused,
)

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_gated(group):
    group.check()


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_many_tiles(gate, layout):
    case = GemmCase(activation="swiglu", gate=gate, layout=layout, m=1000, n=3104, k=520)
    case.check()
    dataclasses.replace(case, bias="bf16", residual="bf16", scale_a="vector").check()
