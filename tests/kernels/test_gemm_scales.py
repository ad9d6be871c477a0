"""GEMM with scales of its operands, every dtype but the 8-bit floats."""

import dataclasses

import pytest
import torch
from case_group import CaseGroup
from gemm_case import GemmCase, judge
from kiln import jit
from storage import DEVICE, DTYPES, place, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

FORMS = [("scalar", "scalar"), ("tensor", "vector"), ("vector", ""), ("", "matrix"),
         ("matrix", "tensor"), ("vector", "vector")]  # fmt: skip


def groups():
    for dtype in DTYPES:
        cases = [
            GemmCase(dtype=dtype, m=m, n=n, k=72, scale_a=a, scale_b=b, out_storage=storage)
            for a, b in FORMS
            for m, n, storage in ((50, 72, "guarded"), (37, 67, "odd"))
        ]
        yield CaseGroup(dtype, tuple(cases))
        odd = GemmCase(dtype=dtype, m=35, n=67, k=45, storage="odd", scale_a="vector",
                       scale_b="vector", bias="f32", residual=dtype, activation="silu",
                       alpha=0.5)  # fmt: skip
        yield CaseGroup(f"{dtype}-odd", (odd,))
        batch = GemmCase(dtype=dtype, m=20, n=50, k=40, batch_a=3, batch_b=3)
        forms = (
            ("batch", "batch"),
            ("vector", "batch"),
            ("matrix", "vector"),
            ("tensor", "scalar"),
        )
        batches = [dataclasses.replace(batch, scale_a=a, scale_b=b) for a, b in forms]
        yield CaseGroup(f"{dtype}-batch", tuple(batches))
    # A split tile is scaled when its parts are summed.
    split = GemmCase(m=20, n=72, k=4608, scale_a="vector", scale_b="vector", bias="f32")
    yield CaseGroup("split", (split,))
    half = GemmCase(dtype="f16", accumulator="float16", m=20, n=72, k=64, scale_a="vector")
    yield CaseGroup("half-sums", (half,))


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_scales(group):
    group.check()


def test_scales_are_a_part_of_acc():
    case = GemmCase(m=40, n=56, k=64)
    a, b = case.inputs()
    scales = dict(
        scale_a=torch.rand([40, 1], device=DEVICE), scale_b=torch.rand([1], device=DEVICE)
    )
    out = place("guarded", [40, 56], torch.bfloat16)
    jit.gemm(a, b, out=out.view, alpha=2.0, epilogue="acc * acc", **scales)
    judge("squares", a, b, out, alpha=2.0, epilogue=lambda acc, *_: acc * acc, **scales)


def test_vectors_may_lie_anywhere():
    """One element off a multiple of 16 bytes, and one entry for all of a batch."""
    case = GemmCase(m=40, n=56, k=64, batch_a=2, batch_b=2)
    a, b = case.inputs()
    odd = torch.rand([57], device=DEVICE)[1:]
    rows = torch.rand([1, 40, 1], device=DEVICE).expand(2, 40, 1)
    out = place("guarded", [2, 40, 56], torch.bfloat16)
    jit.gemm(a, b, out=out.view, scale_a=rows, scale_b=odd)
    judge("offset", a, b, out, scale_a=rows, scale_b=odd)


@pytest.mark.parametrize(
    "options,error,text",
    [
        (dict(scale_a=[3]), ValueError,
         "scale_a must have shape [] or [1] (one for all), or [128] or [128, 1] (one for each row "
         "of the output), got [3]"),
        (dict(scale_a=[1, 128]), ValueError, "scale_a must have shape"),
        (dict(scale_b=[128, 1]), ValueError,
         "scale_b must have shape [] or [1] (one for all), or [128] or [1, 128] (one for each "
         "column of the output), got [128, 1]"),
        (dict(scale_b=[1, 1, 128]), ValueError, "scale_b must have shape"),
    ],
)  # fmt: skip
def test_other_shapes_are_refused(options, error, text):
    a, b = GemmCase().inputs()
    scales = {name: torch.ones(shape, device=DEVICE) for name, shape in options.items()}
    with pytest.raises(error) as caught:
        jit.gemm(a, b, **scales)
    assert text in str(caught.value)


def test_scales_are_float32_and_dense():
    a, b = GemmCase().inputs()
    with pytest.raises(TypeError, match="scale_a must be float32, got bfloat16"):
        jit.gemm(a, b, scale_a=randn([128], torch.bfloat16, 1))
    with pytest.raises(ValueError, match="scale_b must have a stride of 1 between its entries"):
        jit.gemm(a, b, scale_b=torch.ones([256], device=DEVICE)[::2])
