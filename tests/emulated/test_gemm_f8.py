"""GEMM of 8-bit floats, and scales of every dtype, on the emulated device: the GPU's cases, in every
order of asynchronous work, warps and blocks."""

import gemm_f8_bodies
import gemm_scale_bodies
import kiln
import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import ARCH
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
from gemm_scale_bodies import (  # noqa: F401
    test_other_shapes_are_refused,
    test_scales_are_a_part_of_acc,
    test_scales_are_float32_and_dense,
    test_vectors_may_lie_anywhere,
)
from kiln import jit

pytestmark = pytest.mark.usefixtures("compiled", "order")

BODIES = gemm_f8_bodies
GROUPS = [*BODIES.groups(), *BODIES.tile_groups(), *BODIES.epilogue_groups()]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_8_bit_floats(group):
    group.check()


@pytest.mark.parametrize("group", list(gemm_scale_bodies.groups()), ids=str)
def test_scales(group):
    group.check()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_numpy_arrays_by_ml_dtypes(name):
    random = np.random.default_rng(0)
    a, w = (random.standard_normal([rows, 64]).astype(getattr(ml_dtypes, name)) for rows in (20, 24))
    scale = random.random([20, 1], dtype=np.float32)
    out = jit.gemm(a, w.T, scale_a=scale, out_dtype="float32")
    expected = (a.astype(np.float64) @ w.astype(np.float64).T) * scale
    assert type(out) is np.ndarray and np.allclose(out, expected, rtol=1e-3, atol=2e-2)
    assert jit.gemm(a, w.T).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a"])
def test_other_architectures_refuse_8_bit_floats(arch):
    a, b = BODIES.BASE.inputs()
    with kiln.device(f"emulator:{arch}"):
        with pytest.raises(TypeError, match=r"which needs .* 9.0 \(Hopper\), and this one has"):
            jit.gemm(a, b)


def test_every_order_gives_the_same_bits():
    a, b = BODIES.BASE.inputs()
    results = []
    for schedule in ("late", "eager"):
        for seed in (0, 1, 12345):
            with kiln.device(ARCH, schedule=schedule, seed=seed):
                results.append(jit.gemm(a, b, out_dtype=torch.float32))
    assert all(torch.equal(out, results[0]) for out in results)
