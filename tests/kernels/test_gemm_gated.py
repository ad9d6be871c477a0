"""GEMM with gated activations: SwiGLU and both GeGLUs."""

import dataclasses

import kiln
import pytest
import torch
from case_group import CaseGroup
from gemm_case import GemmCase
from grid import arch, sized, some_of
from kiln import jit
from storage import DEVICE, DTYPES, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

GATES = ("halves", "interleaved")
ACTIVATIONS = ("swiglu", "geglu", "geglu_tanh")


def groups():
    """n counts columns of b: outputs have half as many."""
    for dtype in DTYPES:
        for layout in ("nt", "nn", "tt", "tn"):
            cases = [
                GemmCase(dtype=dtype, layout=layout, activation="swiglu", gate=gate, m=m, n=n, k=k)
                for gate in GATES
                for m, n, k in [(64, 128, 64), (37, 272, 72), (1, 2, 1), (33, 134, 45)]
            ]
            yield CaseGroup(f"{dtype}-{layout}", tuple(cases))
        full = GemmCase(dtype=dtype, m=45, n=144, k=72, bias="f32", residual=dtype, alpha=0.5,
                        scale_a="vector", scale_b="vector")  # fmt: skip
        for activation, gate in zip(ACTIVATIONS, (*GATES, "halves"), strict=True):
            case = dataclasses.replace(full, activation=activation, gate=gate)
            odd = dataclasses.replace(case, n=134, storage="odd", out_storage="odd")
            rows = dataclasses.replace(case, layout="nn", bias=dtype)
            yield CaseGroup(f"{dtype}-{activation}-full", (case, odd, rows))
        batch = GemmCase(dtype=dtype, activation="swiglu", m=20, n=48, k=40, bias="f32",
                         residual=dtype)  # fmt: skip
        for a, b in [(3, 3), (3, 0), (0, 3)]:
            cases = [dataclasses.replace(batch, batch_a=a, batch_b=b, gate=gate) for gate in GATES]
            yield CaseGroup(f"{dtype}-batch-{a}-{b}", tuple(cases))
    wide = [GemmCase(activation="swiglu", gate=gate, out_dtype="f32", residual=residual,
                     m=70, n=144, k=64)
            for gate in GATES for residual in ("", "f32", "bf16")]  # fmt: skip
    yield CaseGroup("wide", tuple(wide))
    half = GemmCase(dtype="f16", accumulator="float16", activation="swiglu", m=20, n=144, k=64)
    yield CaseGroup("half-sums", (half,))
    few = [GemmCase(activation="geglu", gate=gate, layout=layout, m=m, n=n, k=200, bias="bf16",
                    out_storage="plain")
           for gate in GATES for layout in ("nt", "tt") for m, n in [(5, 16), (30, 400), (9, 144)]
           ]  # fmt: skip
    yield CaseGroup("few-rows", tuple(few))
    split = GemmCase(activation="swiglu", m=20, n=144, k=2304, scale_b="vector", bias="f32")
    yield CaseGroup("split", (split, dataclasses.replace(split, gate="interleaved")))


def tile_groups():
    """Every tile of Hopper's table that serves them."""
    if arch() not in ("sm_90", "sm_90a"):
        return
    keys = ("block_m", "block_n", "block_k", "stages", "splits")
    specs = [s for s in kiln.enumerate_specs(arch())
             if s["op"] == "gemm" and s["dtype"] == "bfloat16"]  # fmt: skip

    def rows_of(name):
        return {tuple(spec[key] for key in keys) for spec in specs if spec[name]}

    for *row, splits in sorted(rows_of("gate")):
        residual = "bf16" if (*row, splits) in rows_of("residual") else ""
        config = (*row, 1, 3) if splits else tuple(row)
        # Whole vectors of the output, which rows that compute it transposed need.
        case = GemmCase(activation="swiglu", m=row[0] + 5, n=row[1] + 16, k=4 * row[2] + 8,
                        bias="f32", residual=residual, scale_a="vector", scale_b="vector",
                        out_storage="plain", config=config)  # fmt: skip
        plain = dataclasses.replace(case, m=16, n=2 * row[1] + 48, gate="interleaved", bias="",
                                    residual="")  # fmt: skip
        yield CaseGroup("x".join(map(str, config)), (case, plain))


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_gated(group):
    group.check()


@pytest.mark.parametrize("group", some_of(tile_groups(), of=3), ids=str)
def test_every_tile_by_config(group):
    group.check()


def test_no_columns_and_no_k():
    for m, n, k in [(5, 0, 7), (0, 4, 7), (5, 6, 0)]:
        GemmCase(m=m, n=n, k=k, activation="swiglu", bias="f32").check()


def test_the_two_places_of_gates_agree():
    a, w = randn([50, 72], torch.bfloat16, 1), randn([160, 72], torch.bfloat16, 2, 0.125)
    alternating = w.unflatten(0, (2, 80)).transpose(0, 1).flatten(0, 1).contiguous()
    halves = jit.gemm(a, w.t(), activation="swiglu")
    assert halves.shape == (50, 80)
    assert torch.equal(jit.gemm(a, w.t(), activation="swiglu", gate="halves"), halves)
    assert torch.equal(
        jit.gemm(a, alternating.t(), activation="swiglu", gate="interleaved"), halves
    )


@pytest.mark.parametrize(
    "options,text",
    [
        (dict(activation="silu", gate="halves"),
         "gate is for the activations swiglu, geglu and geglu_tanh; leave it out"),
        (dict(gate="interleaved"), "gate is for the activations"),
        (dict(activation="swiglu", gate="thirds"), "gate must be halves or interleaved"),
        (dict(activation="swiglu", epilogue="acc"),
         "activation cannot be gated with an epilogue, which sees one column at a time"),
        (dict(activation="swiglu", bias=64), "bias must have shape [128], got [64]"),
        (dict(activation="swiglu", scale_b=64), "(one for each column of b), got [64]"),
    ],
)  # fmt: skip
def test_what_is_refused(options, text):
    a, b = GemmCase().inputs()
    options = {name: torch.ones(value, device=DEVICE) if isinstance(value, int) else value
               for name, value in options.items()}  # fmt: skip
    with pytest.raises(ValueError) as caught:
        jit.gemm(a, b, **options)
    assert text in str(caught.value)


def test_columns_come_in_pairs():
    a, b = GemmCase(n=127).inputs()
    with pytest.raises(ValueError, match=r"b must have an even number of columns.*got 127"):
        jit.gemm(a, b, activation="swiglu")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_many_tiles(gate, layout):
    shape = sized(small=dict(m=200, n=304, k=136), full=dict(m=1000, n=3104, k=520))
    case = GemmCase(activation="swiglu", gate=gate, layout=layout, **shape)
    case.check()
    dataclasses.replace(case, bias="bf16", residual="bf16", scale_a="vector").check()


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_other_architectures(device, arch):
    with device.on(arch):
        GemmCase(activation="swiglu", m=50, n=144, k=72, bias="f32").check()


@pytest.mark.emulated
def test_who_computes_them():
    for layout, gate, path in [
        ("nt", "halves", "sm_90a"),
        ("nt", "interleaved", "sm_90a"),
        ("nn", "halves", "sm_90a"),
        ("nn", "interleaved", "portable"),
    ]:
        case = GemmCase(activation="swiglu", layout=layout, gate=gate, n=256)
        explanation = case.explain()
        assert explanation["path"] == path, (layout, gate)
    assert "columns apart that alternate" in explanation["why"][0]
