"""GEMM of 8-bit floats, for which a Hopper GPU is needed."""

import gemm_f8_bodies
import pytest
import torch
from gemm_f8_bodies import (  # noqa: F401
    test_a_long_sum,
    test_an_expression_sees_the_scaled_sum,
    test_fast_is_for_8_bit_floats,
    test_other_tensors_are_never_8_bit,
    test_sums_of_ones_are_exact_where_they_are_promoted,
    test_the_output_is_bfloat16_unless_another_is_asked_for,
    test_the_spec_of_a_call_names_its_kernel,
    test_what_is_refused,
)
from kiln import jit

IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
pytestmark = [
    pytest.mark.skipif(not IS_HOPPER, reason="needs compute capability 9.0"),
    pytest.mark.usefixtures("compiled"),
]
BODIES = gemm_f8_bodies
GROUPS = [*BODIES.groups(), *BODIES.tile_groups(), *BODIES.epilogue_groups()]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_8_bit_floats(group):
    group.check()


@pytest.mark.parametrize("m,n,k", [(4096, 4096, 4096), (1000, 2056, 7168)])
@pytest.mark.parametrize("precision,gate", [(None, 1e-5), ("fast", 1e-3)])
def test_large_problems(m, n, k, precision, gate):
    a = torch.randn([m, k], device="cuda").to(torch.float8_e4m3fn)
    w = torch.randn([n, k], device="cuda").to(torch.float8_e4m3fn)
    out = jit.gemm(a, w.t(), out_dtype=torch.float32, precision=precision)
    expected = a.double() @ w.double().t()
    assert gemm_f8_bodies.similarity_loss(out, expected) < gate
    for _ in range(10):
        assert torch.equal(jit.gemm(a, w.t(), out_dtype=torch.float32, precision=precision), out)
