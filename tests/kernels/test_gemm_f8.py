"""GEMM of 8-bit floats, for which Hopper is needed."""

import dataclasses

import grid
import kiln
import numpy as np
import pytest
import torch
from case_group import CaseGroup
from compare import f8_gate
from gemm_case import GemmCase, judge, tiles
from kiln import jit
from storage import DEVICE, F8_DTYPES, place, randn

pytestmark = [
    pytest.mark.skipif(
        grid.arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0"
    ),
    pytest.mark.usefixtures("compiled", "device"),
]

E4M3, E5M2 = F8_DTYPES.values()
# Storage in which rows whose K is no multiple of 16 start at one of 16 bytes.
BASE = GemmCase(dtype="e4m3", storage="guarded", m=70, n=130, k=200)
SIZES = [(70, 130, 200), (129, 67, 45), (1, 8, 16), (1, 1, 1), (33, 264, 128), (130, 257, 300)]


@dataclasses.dataclass(frozen=True)
class F8Group(CaseGroup):
    """Calls on the path of 8-bit floats, each in both precisions."""

    def check(self):
        for case in self.cases:
            assert case.explain()["path"] == "sm_90a", str(case)
        super().check()


def both(name, *cases):
    fast = tuple(dataclasses.replace(case, precision="fast") for case in cases)
    return F8Group(name, (*cases, *fast))


def groups():
    for a in F8_DTYPES:
        for b in F8_DTYPES:
            case = dataclasses.replace(BASE, dtype=a, dtype_b=b)
            sizes = SIZES if a != b else SIZES[:2]
            yield both(f"{a}-{b}", *(dataclasses.replace(case, m=m, n=n, k=k) for m, n, k in sizes))
    for out in ("f16", "f32"):
        yield both(f"to-{out}", dataclasses.replace(BASE, out_dtype=out))
    for storage in ("odd", "offset"):
        yield both(f"out-{storage}", dataclasses.replace(BASE, out_storage=storage))
    gated = dataclasses.replace(BASE, activation="swiglu", n=144, bias="f32", out_storage="plain")
    alternating = dataclasses.replace(gated, m=9, gate="interleaved", scale_b="vector")
    yield both("gated", gated, alternating)
    yield both("plain", dataclasses.replace(BASE, storage="plain", k=208))


def tile_groups():
    promoting = tiles("float8_e4m3fn", "sm_90a", precision="full")
    for config in tiles("float8_e4m3fn", "sm_90a"):
        # Several tiles, rings that turn over, and as many K-tiles as a cluster may share.
        case = dataclasses.replace(
            BASE, m=config[0] + 5, n=config[1] + 3, k=6 * 128 + 7, config=config,
            scale_a="vector", scale_b="vector", bias="f32",
        )  # fmt: skip
        name = "x".join(map(str, config))
        fast = dataclasses.replace(case, precision="fast")
        yield both(name, case) if config in promoting else F8Group(name, (fast,))


def epilogue_groups():
    case = dataclasses.replace(BASE, scale_a="vector", scale_b="vector", bias="f32", alpha=0.5)
    for activation in ("relu", "gelu", "gelu_tanh", "silu"):
        yield both(activation, dataclasses.replace(case, activation=activation, residual="bf16"))
    yield both("tensor-scales", dataclasses.replace(case, scale_a="tensor", scale_b="scalar"))
    batch = dataclasses.replace(case, batch_a=3, batch_b=3, m=20, n=50, k=64)
    yield both("batch", batch, dataclasses.replace(batch, scale_a="batch", scale_b="batch"))
    yield both("weights", dataclasses.replace(batch, batch_b=0))


GROUPS = [*groups(), *grid.some_of(tile_groups(), of=2), *epilogue_groups()]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_8_bit_floats(group):
    group.check()


def similarity_loss(x, y):
    x, y = x.double(), y.double()
    return 1 - 2 * (x * y).sum() / (x * x + y * y).sum()


@pytest.mark.parametrize("precision,gate", [(None, 1e-5), ("fast", 1e-3)])
def test_a_long_sum(precision, gate):
    a, w = randn([40, 4096], E4M3, 1), randn([72, 4096], E5M2, 2)
    out = jit.gemm(a, w.t(), out_dtype=torch.float32, precision=precision)
    assert similarity_loss(out, a.double() @ w.double().t()) < gate


def test_sums_of_ones_are_exact_where_they_are_promoted():
    """Every K-tile counts once; 2^14 and more does not fit into what the tensor cores keep."""
    k = 20000
    a, w = (torch.ones([rows, k], device=DEVICE).to(E4M3) for rows in (40, 72))
    assert (jit.gemm(a, w.t(), out_dtype=torch.float32) == k).all()


def test_the_output_is_bfloat16_unless_another_is_asked_for():
    a, b = BASE.inputs()
    assert jit.gemm(a, b).dtype == torch.bfloat16
    assert jit.gemm(a, b, out_dtype="float16").dtype == torch.float16


def test_an_expression_sees_the_scaled_sum():
    a, b = BASE.inputs()
    out = place("guarded", [70, 130], torch.float32)
    scales = dict(
        scale_a=torch.rand([70, 1], device=DEVICE), scale_b=randn([130], torch.float32, 7)
    )
    jit.gemm(a, b, out=out.view, epilogue="acc > 0.0f ? acc : 0.5f * acc", **scales)
    judge("leaky", a, b, out, limit=f8_gate(torch.float32, ""),
          epilogue=lambda acc, *_: torch.where(acc > 0, acc, acc / 2), **scales)  # fmt: skip


REFUSALS = {
    "one": (lambda a, w: (a, randn([64, 32], torch.bfloat16, 1)), {}, TypeError,
            "b must be float8_e4m3fn or float8_e5m2, as a is float8_e4m3fn, got bfloat16"),
    "other": (lambda a, w: (randn([32, 64], torch.bfloat16, 1), w.t()), {}, TypeError,
              "b must be bfloat16 like a, got float8_e4m3fn"),
    "columns": (lambda a, w: (a, w.t().contiguous()), {}, ValueError,
                "b must be contiguous along K, as it is float8_e4m3fn, got strides [48, 1]; pass "
                "w.t() of a contiguous [n, k] weight"),
    "rows": (lambda a, w: (a.t().contiguous().t(), w.t()), {}, ValueError,
             "a must be contiguous along K, as it is float8_e4m3fn, got strides [1, 32]; call "
             ".contiguous()"),
    "pitch": (lambda a, w: (a[:, :63].contiguous(), w[:, :63].t()), {}, ValueError,
              "a must have strides beside that of K that are multiples of 16, as it is "
              "float8_e4m3fn, got [63, 1]; pad K with zeros"),
    "base": (lambda a, w: (a[:, 8:], w[:, 8:].t()), {}, ValueError,
             "a must lie at a multiple of 16 bytes"),
    "k": (lambda a, w: (a[:, :0], w[:, :0].t()), {}, ValueError, "a must have a K of 1 or more"),
    "out": (lambda a, w: (a, w.t()), {"out_dtype": "uint8"}, TypeError,
            "out must be float16, bfloat16, float32, float8_e4m3fn, float8_e5m2 or int8, got "
            "uint8"),
    "half": (lambda a, w: (a, w.t()), {"accumulator": "float16"}, TypeError,
             "accumulator float16 needs float16 inputs, got float8_e4m3fn"),
    "tile": (lambda a, w: (a, w.t()), {"config": (128, 128, 64, 3)}, ValueError,
             "config must be one of "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(name):
    make, options, error, text = REFUSALS[name]
    a = randn([32, 64], torch.float32, 1).to(E4M3)
    w = randn([48, 64], torch.float32, 2).to(E4M3)
    with pytest.raises(error) as caught:
        jit.gemm(*make(a, w), **options)
    assert text in str(caught.value)


def test_fast_is_for_8_bit_floats():
    a, b = GemmCase().inputs()
    with pytest.raises(ValueError, match='precision "fast" is for float8 inputs, got bfloat16'):
        jit.gemm(a, b, precision="fast")


@pytest.mark.parametrize("role", ["bias", "residual"])
def test_other_tensors_are_never_8_bit(role):
    a, b = BASE.inputs()
    shape = [130] if role == "bias" else [70, 130]
    with pytest.raises(TypeError, match=f"{role} must be float16, bfloat16 or float32, got float8"):
        jit.gemm(a, b, **{role: torch.zeros(shape, device=DEVICE).to(E5M2)})


def test_the_spec_of_a_call_names_its_kernel():
    spec = dataclasses.replace(BASE, dtype_b="e5m2", precision="fast", scale_b="vector").explain()
    spec = spec["spec"]
    assert (spec["dtype"], spec["dtype_b"]) == ("float8_e4m3fn", "float8_e5m2")
    assert (spec["precision"], spec["scale_a"], spec["scale_b"]) == ("fast", "none", "vector")
    assert kiln.prewarm(spec, "sm_90a", check=True)["total"] == 1


@pytest.mark.cuda
@pytest.mark.parametrize("m,n,k", [(4096, 4096, 4096), (1000, 2056, 7168)])
@pytest.mark.parametrize("precision,gate", [(None, 1e-5), ("fast", 1e-3)])
def test_large_problems(m, n, k, precision, gate):
    a = torch.randn([m, k], device="cuda").to(torch.float8_e4m3fn)
    w = torch.randn([n, k], device="cuda").to(torch.float8_e4m3fn)
    out = jit.gemm(a, w.t(), out_dtype=torch.float32, precision=precision)
    assert similarity_loss(out, a.double() @ w.double().t()) < gate
    for _ in range(10):
        assert torch.equal(jit.gemm(a, w.t(), out_dtype=torch.float32, precision=precision), out)


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_numpy_arrays_by_ml_dtypes(name):
    import ml_dtypes

    random = np.random.default_rng(0)
    a, w = (
        random.standard_normal([rows, 64]).astype(getattr(ml_dtypes, name)) for rows in (20, 24)
    )
    scale = random.random([20, 1], dtype=np.float32)
    out = jit.gemm(a, w.T, scale_a=scale, out_dtype="float32")
    expected = (a.astype(np.float64) @ w.astype(np.float64).T) * scale
    assert type(out) is np.ndarray and np.allclose(out, expected, rtol=1e-3, atol=2e-2)
    assert jit.gemm(a, w.T).dtype == ml_dtypes.bfloat16


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a"])
def test_other_architectures_refuse_8_bit_floats(device, arch):
    a, b = BASE.inputs()
    refusal = r"which needs .* 9.0 \(Hopper\), and this one has"
    with device.on(arch), pytest.raises(TypeError, match=refusal):
        jit.gemm(a, b)
