"""GEMM with scales of its operands, every dtype but the 8-bit floats."""

import pytest
from gemm_scale_bodies import (  # noqa: F401
    groups,
    test_other_shapes_are_refused,
    test_scales_are_a_part_of_acc,
    test_scales_are_float32_and_dense,
    test_vectors_may_lie_anywhere,
)

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_scales(group):
    group.check()
