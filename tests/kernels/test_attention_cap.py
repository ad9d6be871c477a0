"""Expressions that are a soft cap, a * tanh(b * logit): the scale is multiplied by b, and the
exponents by a."""

import math

import grid
import kiln
import pytest
import torch
from attention_case import AttentionCase, judge
from kiln import jit
from storage import DEVICE
from variant_case import run

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.few_multiprocessors]

# The sm_90a path takes half as many tiles as there are multiprocessors; and a few queries.
HEADS = grid.by_device(gpu=dict(heads=68, heads_kv=17), emulator=dict(heads=8, heads_kv=2))
SHAPES = {
    "many": dict(head_dim=128, len_q=70, len_kv=210, **HEADS),
    "few": dict(len_q=3, len_kv=210, heads=8, heads_kv=2),
}
TWO_TILES = grid.by_device(  # of each head
    gpu=dict(len_q=230, heads=36, heads_kv=9), emulator=dict(len_q=230, heads=4, heads_kv=1)
)
SEVERAL = grid.by_device(  # tiles of some blocks
    gpu=dict(len_q=70, heads=140, heads_kv=35), emulator=dict(len_q=70, heads=16, heads_kv=4)
)
CAPPED = jit.Variant("capped", params={"a": "f32", "c": "f32"}, logits="a * tanh(logit / c)")
# Whatever the signs are, results are the expression's.
FACTORS = [(3.0, 3.0), (-3.0, 2.0), (2.0, -0.5), (-1.5, -1.5), (0.0, 2.0), (-0.0, 2.0), (0.0, 0.0),
           (1e-40, 1.0), (1e-6, 1e-6), (4.0, 1e-30)]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_factors_of_any_sign_and_zero(shape, causal):
    case = AttentionCase(**SHAPES[shape], causal=causal)
    if shape == "many" and grid.arch().startswith("sm_90"):
        assert case.explain()["path"] == "sm_90a"
    for a, c in FACTORS:
        # The textbook's 0 / 0 is NaN, and 0 * tanh(0 / 0) is 0 here.
        run(CAPPED(a=a, c=c), case, logits=lambda s, at, a=a, c=c: a * torch.tanh(s / (c or 1.0)))


# Far from the cap, a polynomial serves, and up to some cap weights need no maximum. Queries before
# the first key see none. A scale of 2^30 has a cube beyond float's range.
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("cap", [5.0, 30.0, 90.0])
def test_logits_near_the_cap_and_far_from_it(dtype, head_dim, cap):
    shape = dict(SHAPES["many"], dtype=dtype, head_dim=head_dim, softcap=cap, **TWO_TILES)
    if grid.arch().startswith("sm_90"):
        assert AttentionCase(**shape, causal=True).explain()["path"] == "sm_90a"
    for scale in (None, 2.0, -0.7, 0.0, 2.0**30):
        AttentionCase(**shape, causal=True, scale=scale).check()
    AttentionCase(**{**shape, **SEVERAL}, window=(90, 20), sinks="f32").check()
    AttentionCase(**shape, magnitude=2.0**-40, scale=2.0**36).check()


@pytest.mark.parametrize("sign", [1, -1])
def test_keys_near_the_cap_among_others(sign):
    """Tiles after one with such keys take the same way for a while, and rows before them do not."""
    heads = grid.by_device(gpu=36, emulator=4)
    case = AttentionCase(head_dim=128, len_q=200, len_kv=1500, heads=heads, heads_kv=heads,
                         softcap=9.0)  # fmt: skip
    q, k, v = case.inputs()
    k[:, [3, 801]] *= 40 * sign
    k[:, 1290] = k[:, 1290].abs() * -30 * sign
    for causal in (False, True):
        out, lse = case.outputs()
        options = dict(softcap=9.0, causal=causal)
        jit.flash_attention(q, k, v, out=out.view, lse=lse, **options)
        judge(f"causal {causal}", q, k, v, out, lse, **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_not_a_number_stays_so(shape):
    case = AttentionCase(**SHAPES[shape], causal=True)
    q, k, v = case.inputs()
    for a, c in ((math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (-math.inf, 1.0)):
        out = jit.flash_attention(q, k, v, causal=True, variant=CAPPED(a=a, c=c))
        assert out.isnan().all(), (a, c)


WRITTEN = {
    "-tanh(-(float)logit * cap) / cap": lambda s: torch.tanh(s * 3.0) / 3.0,
    "count * (0.5 * +tanhf(2 * logit / count))": lambda s: 3.5 * torch.tanh(2 * s / 7),
    "1 / count * tanh(logit)": lambda s: 0 * s,  # of ints
    "static_cast<float>(tanh(logit * (count / 2))) * cap": lambda s: 3 * torch.tanh(s * 3),
}


@pytest.mark.parametrize("written", WRITTEN)
def test_how_it_may_be_written(written):
    variant = jit.Variant("written", params={"cap": "f32", "count": "i32"}, logits=written)
    run(variant(cap=3.0, count=7), AttentionCase(**SHAPES["few"]),
        logits=lambda s, at: WRITTEN[written](s))  # fmt: skip


def test_a_list_has_factors_between_its_variants():
    """Which the kernel can leave out of the first and the last alone."""
    shifted = jit.Variant("shifted", logits="logit + 0.01f * kv")()
    case = AttentionCase(**SHAPES["many"], scale=-0.2, sinks="f32", causal=True)

    def cap(s, a=2.0, c=0.7):
        return a * torch.tanh(s / c)

    def shift(s, at):
        return s + 0.01 * at.kv

    capped = CAPPED(a=2.0, c=0.7)
    run([capped, shifted], case, logits=lambda s, at: shift(cap(s), at))
    run([shifted, capped], case, logits=lambda s, at: cap(shift(s, at)))
    run([capped, CAPPED(a=-1.0, c=2.0), shifted, capped], case,
        logits=lambda s, at: cap(shift(cap(cap(s), -1.0, 2.0), at)))  # fmt: skip


def test_beside_other_options():
    case = AttentionCase(**SHAPES["many"], softcap=6.0, alibi="h", sinks="bf16", window=(90, 0))
    run(CAPPED(a=-2.0, c=3.0), case, logits=lambda s, at: -2.0 * torch.tanh(s / 3.0))
    mask = jit.Variant("odd", mask="kv % 3 != 1")()
    bias = torch.randn(1, 1, 70, 210, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    case = AttentionCase(**SHAPES["many"])
    q, k, v = case.inputs()
    out, lse = case.outputs()
    capped = [CAPPED(a=-2.0, c=3.0), mask]
    jit.flash_attention(q, k, v, out=out.view, lse=lse, attn_mask=bias, variant=capped)
    judge("bias", q, k, v, out, lse, mask=lambda at: at.kv % 3 != 1,
          logits=lambda s, at: -2.0 * torch.tanh((s + bias.to(s.dtype)) / 3.0))  # fmt: skip


def test_names_that_a_variant_gives():
    """A table called tanh is no function, and parameters may have the names of the hooks."""
    table = torch.tensor([0.5, -1.0, 2.0], device=DEVICE)
    variant = jit.Variant("table", tensors={"tanh": "f32[*]"}, logits="2 * tanh(int(logit))")
    case = AttentionCase(**SHAPES["few"])

    def looked_up(s, at):
        return 2 * table.to(s.dtype)[s.trunc().clamp(0, 2).long()]

    q, k, v = case.inputs()
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, variant=variant(tanh=table))
    judge("table", q, k, v, out, lse, logits=looked_up)
    named = jit.Variant("named", params={"cap_size": "f32", "cap_factor": "f32"},
                        logits="cap_size * tanh(logit * cap_factor)")  # fmt: skip
    run(named(cap_size=2.0, cap_factor=0.5), case, logits=lambda s, at: 2 * torch.tanh(s / 2))


@pytest.mark.parametrize("byte", [False, True])
def test_caches(byte):
    """Paged ones, also of bytes, whose scales differ by the head."""
    generator = torch.Generator().manual_seed(4)
    q = torch.randn(1, 70, 140, 64, generator=generator).bfloat16().to(DEVICE)
    pages = [torch.randn(20, 16, 35, 64, generator=generator).to(DEVICE) for _ in range(2)]
    pages = [x.to(torch.float8_e4m3fn if byte else torch.bfloat16) for x in pages]
    words = {
        "cache_seqlens": torch.tensor([300], dtype=torch.int32, device=DEVICE),
        "block_table": torch.arange(20, dtype=torch.int32, device=DEVICE).flip(0)[None],
        "causal": True,
    }
    if byte:
        words["k_scale"] = words["v_scale"] = torch.linspace(0.5, 2, 35, device=DEVICE)
    outs = [
        jit.flash_attention_with_kvcache(q, *pages, return_lse=True, **words, **cap)
        for cap in ({"variant": CAPPED(a=-3.0, c=-3.0)}, {"softcap": 3.0})
    ]
    assert (outs[0][0].float() - outs[1][0].float()).abs().max() < 0.02
    assert (outs[0][1] - outs[1][1]).abs().max() < 1e-3
    assert kiln.explain("flash_attention_with_kvcache", q, *pages, **words)["path"]
