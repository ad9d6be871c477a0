"""GEMMs as programmatic launches, which may begin before the launch before them has ended. The
emulated device reports what they access too early; a GPU computes the same bits as without."""

import dataclasses

import kiln
import pytest
import torch
from gemm_case import GemmCase
from kiln import jit
from storage import DEVICE, filled, randn

pytestmark = pytest.mark.usefixtures("device")

# Of every kind of kernel: tiles by whom they are computed and what they are made of.
CASES = {
    "persistent": GemmCase(m=200, n=264, k=200, config=(128, 128, 64, 6)),
    "swapped": GemmCase(m=20, n=328, k=1160, config=(32, 64, 64, 14)),
    "shared-columns": GemmCase(m=40, n=328, k=200, config=(64, 128, 64, 8, 4)),
    "shared-k": GemmCase(m=20, n=136, k=1160, config=(64, 128, 64, 9, 0, 3)),
    "two-on-a-multiprocessor": GemmCase(m=20, n=72, k=1160, config=(32, 64, 64, 9, 0, 3)),
    "shared-k-upright": GemmCase(m=140, n=72, k=1160, config=(128, 96, 64, 8, 0, 3)),
    "gated": GemmCase(m=20, n=144, k=200, activation="swiglu"),
    "kn": GemmCase(m=140, n=136, k=200, layout="nn"),
    "8-bit": GemmCase(dtype="e4m3", m=20, n=144, k=1168),
    "portable": GemmCase(m=40, n=67, k=131, storage="odd", out_storage="odd"),
    "portable-shared-k": GemmCase(m=20, n=67, k=4099, storage="odd", out_storage="odd"),
}


def outputs(case, a, b, pdl):
    """Of two equal launches, the second of which overwrites what the first has written."""
    out = case.output()
    for _ in range(2):
        case.call(a, b, out.view, pdl=pdl, **case.epilogue())
    return out.view


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_same_bits(case):
    a, b = case.inputs()
    expected = outputs(case, a, b, False)
    for pdl in (True, "weights"):
        assert torch.equal(outputs(case, a, b, pdl), expected)


def written(x, y):
    """A matrix that the launch before writes."""
    return jit.gemm(x, y.t(), precision="tf32")


# Of the sums of tf32, so that one matrix holds all operands. Slices begin at whole vectors or,
# in "portable", between them.
EVERYTHING = {
    "persistent": (dict(config=(128, 96, 32, 6)), 0),
    "swapped": (dict(config=(16, 64, 32, 16)), 0),
    "shared-k": (dict(config=(64, 128, 32, 9, 0, 3)), 0),
    "portable": (dict(), 1),
}


@pytest.mark.parametrize("options, shift", EVERYTHING.values(), ids=EVERYTHING)
def test_everything_may_come_from_the_launch_before(options, shift):
    m, n, k = 16, 64, 320
    x, y = randn([192, 64], torch.float32, 1), randn([404, 64], torch.float32, 2)

    def call(pdl):
        whole = written(x, y)
        rows = whole[:, shift : shift + k]
        beside = whole[:, 336 + shift : 336 + shift + n]
        return jit.gemm(
            rows[:m], rows[m : m + n].t(), bias=beside[0], residual=beside[16 : 16 + m],
            scale_a=whole[100, :m], scale_b=whole[101, shift : shift + n], precision="tf32",
            pdl=pdl, **options,
        )  # fmt: skip

    call(True)  # the emulated device records launches from the first programmatic one on
    assert torch.equal(call(True), call(False))


@pytest.mark.parametrize("name", ["swapped", "shared-k", "portable"])
def test_a_chain(name):
    """Each reads what the one before has written, and only weights are read early."""
    base = dataclasses.replace(CASES[name], n=72, k=72, bias="f32", config=None)
    weights = [filled(base.storage, randn([72, 72], torch.bfloat16, 30 + i)) for i in range(5)]
    x = filled(base.storage, randn([20, 72], torch.bfloat16, 3))
    bias = randn([72], torch.float32, 4)

    def chain(pdl):
        rows = x
        for weight in weights:
            rows = jit.gemm(rows, weight.t(), bias=bias, activation="silu", pdl=pdl)
        return rows

    expected = chain(False)
    for pdl in (True, "weights"):
        assert torch.equal(chain(pdl), expected)


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["swapped", "shared-k", "shared-k-upright"])
def test_weights_that_the_launch_before_writes_break_the_promise(name):
    config = CASES[name].config
    x = randn([20, 128], torch.bfloat16, 1)
    weight = jit.gemm(randn([128, 64], torch.bfloat16, 2), randn([64, 128], torch.bfloat16, 3))
    expected = jit.gemm(x, weight.t(), config=config)
    jit.gemm(randn([128, 64], torch.bfloat16, 2), randn([64, 128], torch.bfloat16, 3), out=weight)
    assert torch.equal(jit.gemm(x, weight.t(), config=config, pdl=True), expected)
    jit.gemm(randn([128, 64], torch.bfloat16, 2), randn([64, 128], torch.bfloat16, 3), out=weight)
    with pytest.raises(kiln.EmulatorError, match="missing wait for a launch: read of"):
        jit.gemm(x, weight.t(), config=config, pdl="weights")


@pytest.mark.emulated
def test_rows_of_which_two_fit_on_a_multiprocessor_do_not_begin_early():
    """They are launched as usual, so that no promise can be broken."""
    config = CASES["two-on-a-multiprocessor"].config
    x = randn([20, 128], torch.bfloat16, 1)
    operands = randn([128, 64], torch.bfloat16, 2), randn([64, 128], torch.bfloat16, 3)
    weight = jit.gemm(*operands)
    expected = jit.gemm(x, weight.t(), config=config)
    jit.gemm(*operands, out=weight)
    assert torch.equal(jit.gemm(x, weight.t(), config=config, pdl="weights"), expected)


def test_an_empty_k_and_an_empty_output():
    for m, k in ((16, 0), (0, 16)):
        a = torch.ones([m, k], dtype=torch.bfloat16, device=DEVICE)
        b = torch.ones([k, 16], dtype=torch.bfloat16, device=DEVICE)
        assert torch.equal(jit.gemm(a, b, pdl="weights"), jit.gemm(a, b))
        assert kiln.explain("gemm", a, b, pdl=True)["path"]
