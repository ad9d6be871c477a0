"""Scales of blocks in UE8M0, whose bytes are powers of two: the results are, bit for bit, those of
the same numbers in float32, which test_gemm_blocks.py compares with the product."""

import dataclasses

import grid
import kiln
import kiln.operators  # torch.ops.kiln
import ml_dtypes
import numpy
import pytest
import torch
from block_case import BlockCase, blocks_of
from kiln import jit
from storage import DEVICE, F8_DTYPES

pytestmark = [
    pytest.mark.skipif(
        grid.arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0"
    ),
    pytest.mark.usefixtures("compiled", "device"),
]

E8M0 = torch.float8_e8m0fnu
BASE = BlockCase()
E4M3 = F8_DTYPES["e4m3"]


def powers_of(scale):
    return torch.exp2(torch.floor(torch.log2(scale)))


def bytes_of(powers):
    """The same numbers with the same strides, at an odd address and between NaN."""
    extent = 1 + sum((n - 1) * s for n, s in zip(powers.shape, powers.stride(), strict=True))
    memory = torch.full([extent + 16], 255, dtype=torch.uint8, device=powers.device)
    view = memory[5 : 5 + extent].as_strided(powers.shape, powers.stride(), 5)
    view.copy_(powers.contiguous().view(torch.int32) >> 23)
    return view.view(E8M0)


def compare(case, **changes):
    operands, options = case.arguments()
    options |= changes
    floats = options | {name: powers_of(options[name]) for name in ("scale_a", "scale_b")}
    bytes_ = options | {name: bytes_of(floats[name]) for name in ("scale_a", "scale_b")}
    wanted, out = case.output(), case.output()
    jit.gemm(*operands, out=wanted.view, **floats)
    jit.gemm(*operands, out=out.view, **bytes_)
    assert not out.view.isnan().any()
    assert torch.equal(out.view, wanted.view), str(case)
    out.check_untouched(str(case))


# Up to four stages at a time, the last of them in part; one to three warps; a part of K each.
CASES = (
    BASE,
    *(
        dataclasses.replace(BASE, m=m, n=n, k=k)
        for m, n, k in [(1, 8, 16), (3, 1, 129), (129, 130, 513), (33, 264, 128), (5, 9, 1100)]
    ),
    dataclasses.replace(BASE, columns=True, k=700),
    dataclasses.replace(BASE, contiguous="m", trans_b=True, k=640),
    dataclasses.replace(BASE, batch=2, m=20, n=150, k=200, contiguous="m", columns=True),
    dataclasses.replace(BASE, bias="f32", residual="bf16", activation="silu", out_storage="odd"),
    BlockCase(m=300, n=150, k=6 * 128 + 7, config=(64, 128, 128, 7)),
    BlockCase(m=140, n=300, k=6 * 128 + 7, config=(128, 160, 128, 5), columns=True),
    BlockCase(m=140, n=300, k=7 * 128, config=(128, 128, 128, 6, 1, 3)),
    BlockCase(m=20, n=130, k=9 * 128, config=(16, 64, 128, 10, 1, 3)),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_those_of_floats(case):
    compare(case)


def expert_case(rows, experts, k=700, n=150):
    """a of all rows, b of each expert and their scales, as floats."""
    case = BlockCase(m=rows, n=n, k=k)
    a, _, scale_a, _ = case.inputs()
    _, w, _, scale_b = dataclasses.replace(case, batch=experts).inputs()
    return a, w.mT, powers_of(scale_a), powers_of(scale_b).mT


def test_groups_of_rows():
    a, b, scale_a, scale_b = expert_case(30, 3)
    offsets = torch.tensor([7, 7, 30], dtype=torch.int32, device=DEVICE)
    wanted = jit.gemm(a, b, offsets=offsets, scale_a=scale_a, scale_b=scale_b)
    out = jit.gemm(a, b, offsets=offsets, scale_a=bytes_of(scale_a), scale_b=bytes_of(scale_b))
    assert torch.equal(out, wanted)


def test_groups_with_counts():
    a, b, scale_a, scale_b = expert_case(30, 3)
    a, scale_a = a.reshape(3, 10, -1), scale_a.reshape(3, 10, -1)
    counts = torch.tensor([10, 0, 4], dtype=torch.int32, device=DEVICE)
    wanted, out = (torch.zeros(3, 10, 150, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    jit.gemm(a, b, counts=counts, out=wanted, scale_a=scale_a, scale_b=scale_b)
    jit.gemm(a, b, counts=counts, out=out, scale_a=bytes_of(scale_a), scale_b=bytes_of(scale_b))
    assert torch.equal(out, wanted)
    assert wanted[0].any() and not wanted[1].any()


def scale_tensor(rows):
    return torch.tensor(rows, dtype=torch.uint8, device=DEVICE).view(E8M0)


def test_every_byte_is_its_number():
    """Rows of ones: the largest factor of b makes numbers of the least of a that float32 holds."""
    ones = torch.ones([256, 128], device=DEVICE).to(E4M3)
    scale_a = torch.arange(256, dtype=torch.uint8, device=DEVICE)[:, None].view(E8M0)
    for byte in (0, 127, 247, 254):
        out = jit.gemm(ones, ones[:8].t(), scale_a=scale_a, scale_b=scale_tensor([[byte]]),
                       out_dtype=torch.float32)  # fmt: skip
        factors = torch.exp2(torch.arange(255, device=DEVICE).double() - 127)
        # The two factors are multiplied first, and rounded or infinite as floats are.
        products = (factors.float() * torch.tensor(2.0 ** (byte - 127), device=DEVICE)) * 128.0
        assert torch.equal(out[:255], products[:, None].expand(-1, 8)), byte
        assert out[255].isnan().all()


def test_a_vector_of_bytes_is_a_scale_of_blocks():
    """Where K is up to 128, the shapes are the same, and only such scales may be bytes."""
    case = dataclasses.replace(BASE, k=128, columns=True)
    a, w, scale_a, scale_b = case.inputs()
    options = dict(scale_a=bytes_of(powers_of(scale_a)), scale_b=bytes_of(powers_of(scale_b)).mT)
    spec = kiln.explain("gemm", a, w.t(), **options)["spec"]
    assert (spec["scale_a"], spec["scale_b"]) == ("groups", "groups")
    assert spec["scale_dtype"] == "float8_e8m0fnu"
    assert kiln.prewarm(spec, "sm_90a", check=True)["total"] == 1
    compare(case)


def test_operators():
    (a, b), options = BASE.arguments()
    scales = [bytes_of(powers_of(options[name])) for name in ("scale_a", "scale_b")]
    wanted = jit.gemm(a, b, scale_a=scales[0], scale_b=scales[1])
    out = torch.ops.kiln.gemm(a, b, scale_a=scales[0], scale_b=scales[1])
    assert torch.equal(out, wanted)


@pytest.mark.skipif(grid.on_gpu(), reason="arrays of NumPy's are in host memory")
def test_arrays():
    rng = numpy.random.default_rng(1)
    a, w = (rng.integers(-4, 5, [rows, 256]).astype(ml_dtypes.float8_e4m3fn) for rows in (6, 130))
    scale_a, scale_w = (2.0 ** rng.integers(-4, 5, [rows, 2]) for rows in (6, 2))
    outs = [
        jit.gemm(a, w.T, scale_a=scale_a.astype(dtype), scale_b=scale_w.astype(dtype).T)
        for dtype in (numpy.float32, ml_dtypes.float8_e8m0fnu)
    ]
    assert (outs[0] == outs[1]).all() and outs[0].astype(float).any()


def refusals():
    (a, b), options = BASE.arguments()
    scale_a, scale_b = (bytes_of(powers_of(options[name])) for name in ("scale_a", "scale_b"))
    return {
        "floats beside bytes": (a, b, scale_a, options["scale_b"], TypeError,
                                "scale_b must be float8_e8m0fnu like scale_a, got float32"),
        "bytes beside floats": (a, b, options["scale_a"], scale_b, TypeError,
                                "scale_b must be float32 like scale_a, got float8_e8m0fnu"),
        "a vector": (a, b, scale_a[:, 0].contiguous(), None, TypeError,
                     "scale_a must be float32, as only scales of blocks, one for each 128 of K, "
                     "may be float8_e8m0fnu, got shape [70]"),
        "one": (a, b, scale_a, None, ValueError, "scale_b must have shape [3, 200]"),
        "16 bits": (a.bfloat16(), b.bfloat16(), scale_a, scale_b, TypeError,
                    "scale_a must be float32, got float8_e8m0fnu"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["floats beside bytes", "bytes beside floats", "a vector", "one",
                                  "16 bits"])  # fmt: skip
def test_what_is_refused(name):
    a, b, scale_a, scale_b, error, text = refusals()[name]
    with pytest.raises(error) as caught:
        jit.gemm(a, b, scale_a=scale_a, scale_b=scale_b)
    assert text in str(caught.value)


@pytest.mark.cuda
@pytest.mark.parametrize("m,n,k", [(4096, 7168, 2048), (1000, 2112, 7168), (64, 7168, 16384)])
@pytest.mark.parametrize("columns", [False, True])
def test_large_problems(m, n, k, columns):
    assert blocks_of(k) > 4
    compare(dataclasses.replace(BASE, m=m, n=n, k=k, columns=columns, contiguous="m"))
