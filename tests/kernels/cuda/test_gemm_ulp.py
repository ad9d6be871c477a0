"""How far results lie from the exact ones, in units of the output's last place, on random data of
the shapes that models have; and that a launch repeated gives the same bits."""

import pytest
import torch
from kiln import jit

DTYPES = [torch.bfloat16, torch.float16]
SHAPES = [(m, 4096, 4096) for m in (1, 16, 64, 256, 2048)] + [
    (64, 3584, 18944),  # a long K, which CTAs share
    (256, 4096, 14336),
    (4096, 2112, 7168),
    (515, 1000, 1032),  # nothing divides
]


def ulps_apart(x, y):
    """Of two tensors of 16-bit floats: how many representable numbers lie between them."""

    def ordered(t):
        bits = t.view(torch.int16).to(torch.int32)
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return (ordered(x) - ordered(y)).abs()


# wgmma cuts off low bits of each addition to its float32 sums, so that small sums of many products
# miss. bf16's last place is coarse enough; of fp16, 0.15 % at K = 4096 and 0.5 % at 14336 miss, and
# of cuBLAS's results 0.15 % and, with K in more parts, 0.3 % do.
def share_wanted(dtype, k):
    if dtype == torch.bfloat16:
        return 0.999
    return 0.999 if k < 2048 else 0.997 if k <= 8192 else 0.99


def within_one_ulp(out, exact):
    return (ulps_apart(out, exact.to(out.dtype)) <= 1).double().mean().item()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_elements_are_within_one_ulp(dtype, m, n, k):
    torch.manual_seed(m + n + k)
    a, w = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (m, n))
    out = jit.gemm(a, w.t())
    assert within_one_ulp(out, a.double() @ w.double().t()) >= share_wanted(dtype, k)
    for _ in range(3):
        assert torch.equal(out, jit.gemm(a, w.t()))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_of_every_layout(layout):
    torch.manual_seed(0)
    a, b = (torch.randn(768, 768, device="cuda").bfloat16() for _ in range(2))
    x = a.t() if layout[0] == "t" else a
    y = b.t() if layout[1] == "t" else b
    assert within_one_ulp(jit.gemm(x, y), x.double() @ y.double()) >= 0.999


@pytest.mark.parametrize("precision, limit", [(None, 1e-5), ("fast", 1e-3)])
@pytest.mark.parametrize("m, n, k", [(64, 4096, 4096), (1024, 2048, 8192)])
def test_the_difference_of_8_bit_products(precision, limit, m, n, k):
    """1 - 2 sum(x y) / sum(x^2 + y^2), in float32, so that it is not that of the rounding."""
    torch.manual_seed(m)
    a, w = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    out = jit.gemm(a, w.t(), out_dtype=torch.float32, precision=precision).double()
    exact = a.double() @ w.double().t()
    difference = 1 - 2 * (out * exact).sum() / (out.square() + exact.square()).sum()
    assert difference.item() < limit
