"""Logits of the sm_90a path that are linear in the key's index: the tensor cores add what they grow
by, as three bfloat16, and tiles of keys are visited from the last one back."""

import math

import flex_case
import grid
import kiln
import pytest
import torch
from attention_case import AttentionCase, judge
from flex_case import inputs
from kiln import jit, variants
from storage import DEVICE, randn
from torch.nn.attention.flex_attention import create_block_mask
from variant_case import run

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.few_multiprocessors,
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

# More tiles than there are multiprocessors, so that a block computes several.
MANY = grid.by_device(gpu=dict(heads=140, heads_kv=35), emulator=dict(heads=28, heads_kv=7))
# Half as many or more, each head of two.
TWO_TILES = grid.by_device(gpu=dict(heads=68, heads_kv=17), emulator=dict(heads=8, heads_kv=2))

# How much the logits of a head grow from key to key.
TILTS = (0.0, 1e-3, 0.07, 0.9, 2.0, -0.02, -1.5)


@pytest.mark.parametrize("options", [{}, {"scale": -0.2, "sinks": "f32"}, {"scale": 0.0}], ids=str)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_tilted_logits(dtype, options):
    """Under causal masks ALiBi adds a multiple of the key's index to the scores themselves."""
    case = AttentionCase(dtype=dtype, len_q=70, len_kv=330, causal=True, **MANY, **options)
    q, k, v = case.inputs()
    slopes = torch.tensor(TILTS, device=DEVICE).repeat(case.heads // len(TILTS))
    options = {**case.options(), "alibi_slopes": slopes}
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, **options)
    judge("tilted", q, k, v, out, lse, **options)


SLOPE = {"tensors": {"slope": "f32[h]"}}
TABLE = {"tensors": {"slope": "f32[*]"}}
# Expressions of a variant, whether the call is causal, and what they add to the logits.
TILTED = {
    "distance": (dict(logits="logit - slope * abs(at.distance)", **SLOPE), True,
                 lambda slope, at: slope * (at.kv - at.q)),
    "full": (dict(logits="logit + (kv - q) * slope / 2", **SLOPE), False,
             lambda slope, at: slope * (at.kv - at.q) / 2),
    "factor": (dict(logits="0.5f - (logit - slope * (kv - q)) * (h % 3 + 0.5f)", **SLOPE), True,
               lambda slope, at: slope * (at.kv - at.q)),
    "rows": (dict(logits="logit + slope(h) * (kv - row) + 0.01f * row", mask="kv <= q", **TABLE),
             False, lambda slope, at: slope * (at.kv - at.row) + 0.01 * at.row),
    "past": (dict(logits="logit - slope * abs(kv - q)", mask="q >= kv && q - kv < 200", **SLOPE),
             False, lambda slope, at: slope * (at.kv - at.q)),
    "past of rows": (dict(logits="logit - slope * abs(row - kv)", mask="row >= kv", **SLOPE),
                     False, lambda slope, at: slope * (at.kv - at.row)),
}  # fmt: skip


@pytest.mark.parametrize("name", TILTED)
def test_expressions_that_tilt(name):
    words, causal, adds = TILTED[name]
    len_q = 270 if name == "past of rows" else 66
    case = AttentionCase(len_q=len_q, len_kv=300, causal=causal, **MANY)
    slope = torch.tensor((0.0, 0.2, 0.01, -0.03), device=DEVICE).repeat(case.heads // 4)
    variant = jit.Variant(name, **words)(slope=slope)

    def logits(s, at):
        added = adds(slope.to(s.dtype).view(1, -1, 1, 1), at)
        return 0.5 - (s - added) * (at.h % 3 + 0.5) if name == "factor" else s + added

    def mask(at):
        shown = {"kv <= q": at.kv <= at.q, "row >= kv": at.kv <= at.row, None: at.kv >= 0}
        shown["q >= kv && q - kv < 200"] = (at.kv <= at.q) & (at.q - at.kv < 200)
        return shown[words.get("mask")]

    run(variant, case, logits=logits, mask=mask)
    odd = jit.Variant("odd", mask="kv % 3 != 1")()
    run([odd, variant], case, logits=logits, mask=lambda at: mask(at) & (at.kv % 3 != 1))


def test_alibi_beside_a_tilt_up_to_the_row():
    """A row's logits follow from that of its own key, where ALiBi's share is not 0."""
    words, _, adds = TILTED["past of rows"]
    case = AttentionCase(len_q=66, len_kv=300, causal=True, alibi="h", sinks="f32", **MANY)
    slope = torch.tensor((0.0, 0.2, 0.01, -0.03), device=DEVICE).repeat(case.heads // 4)
    variant = jit.Variant("rows", **words)(slope=slope)
    run(variant, case, mask=lambda at: at.kv <= at.row,
        logits=lambda s, at: s + adds(slope.to(s.dtype).view(1, -1, 1, 1), at))  # fmt: skip


@pytest.mark.parametrize("head_dim", [64, 128])
def test_masks_of_tensors_beside_tilts(head_dim):
    """The mask says which tiles are skipped and which are asked about by pairs; of the others, the
    call's causal mask hides some."""
    case = AttentionCase(head_dim=head_dim, len_q=130, len_kv=430, causal=True, **MANY)
    ids = (torch.arange(430, device=DEVICE, dtype=torch.int32) // 150)[None]
    slopes = torch.tensor(TILTS[:4], device=DEVICE).repeat(case.heads // 4)
    documents = variants.documents(ids)

    def logits(s, at):
        return s + slopes.view(1, -1, 1, 1) * (at.kv - at.q)

    def mask(at):
        return ids[0, at.q] == ids[0, at.kv]

    run([documents, variants.alibi(slopes)], case, logits=logits, mask=mask)
    run(documents, case, alibi_slopes=slopes, mask=mask)


def test_blocks_beside_tilts():
    """A BlockMask's tiles are drawn, and visited from the last key back."""
    q, k, v = inputs(batch=1, len_q=230, len_kv=430, **TWO_TILES)
    slopes = torch.tensor(TILTS[:4], device=DEVICE).repeat(TWO_TILES["heads"] // 4)
    document = torch.arange(430, device=DEVICE) // 150

    def tilted(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    def causal(b, h, q_idx, kv_idx):
        return q_idx + 100 >= kv_idx

    def documents(b, h, q_idx, kv_idx):
        return causal(b, h, q_idx, kv_idx) & (document[q_idx + 100] == document[kv_idx])

    for shown, size in ((causal, 128), (documents, 128), (documents, 64)):
        blocks = create_block_mask(shown, None, None, 230, 430, device=DEVICE, BLOCK_SIZE=size)
        flex_case.run((q, k, v), tilted, shown, blocks)


@pytest.mark.parametrize("len_q", [230, 430])
def test_magnitudes_beside_a_mask_of_the_past(len_q):
    """Positions of flex_attention count from 0 on both sides."""
    given = inputs(batch=1, len_q=len_q, len_kv=430, **TWO_TILES)
    slopes = torch.tensor(TILTS[:4], device=DEVICE).repeat(TWO_TILES["heads"] // 4)

    def biased(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * abs(q_idx - kv_idx)

    def past(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (kv_idx % 7 != 3)

    flex_case.run(given, biased, past)


def test_tilted_logits_of_more_than_32_tiles():
    """Which are visited from the last one back."""
    heads = grid.by_device(gpu=70, emulator=16)
    case = AttentionCase(head_dim=8, len_q=10, len_kv=4300, heads=heads, heads_kv=2, causal=True)
    assert case.explain()["path"] == "sm_90a"
    q, k, v = case.inputs()
    options = {**case.options(), "alibi_slopes": torch.linspace(-1e-3, 1e-3, heads, device=DEVICE)}
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, **options)
    judge("tilted", q, k, v, out, lse, **options)


@pytest.mark.parametrize(
    "shape",
    [dict(head_dim=128, len_q=70, len_kv=2100), dict(head_dim=64, len_q=70, len_kv=2100)],
    ids=["d128", "d64"],
)
def test_splits_of_tilted_logits(shape):
    case = AttentionCase(dtype="f16", heads=2, heads_kv=1, causal=True, **shape)
    q, k, v = case.inputs()
    slopes = torch.tensor([0.003, 0.3], device=DEVICE)
    options = {**case.options(), "alibi_slopes": slopes}
    found = kiln.explain("flash_attention", q, k, v, causal=True, alibi_slopes=slopes)
    assert found["path"] == "sm_90a" and found["splits"] > 1
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, **options)
    judge("split", q, k, v, out, lse, **options)


@pytest.mark.parametrize("page", [5, 16])
def test_tilted_logits_of_pages(page):
    """Threads gather rows of pages from the last tile back too, and look pages up a tile ahead."""
    len_q, len_kv, heads, heads_kv = 70, 300, MANY["heads"], MANY["heads_kv"]
    q = randn([1, len_q, heads, 64], torch.bfloat16, 1)
    k, v = (randn([1, len_kv, heads_kv, 64], torch.bfloat16, seed) for seed in (2, 3))
    count = -(-len_kv // page)
    pages = []
    for rows in (k, v):
        padded = torch.full([count * page, heads_kv, 64], math.nan, device=DEVICE).to(rows.dtype)
        padded[:len_kv] = rows[0]
        pages.append(padded.view(count, page, heads_kv, 64).flip(0).contiguous())
    words = {
        "cache_seqlens": torch.tensor([len_kv], dtype=torch.int32, device=DEVICE),
        "block_table": torch.arange(count, dtype=torch.int32, device=DEVICE).flip(0)[None],
        "alibi_slopes": torch.linspace(-0.01, 0.3, heads, device=DEVICE),
        "causal": True,
    }
    assert kiln.explain("flash_attention_with_kvcache", q, *pages, **words)["path"] == "sm_90a"
    out, lse = jit.flash_attention_with_kvcache(q, *pages, return_lse=True, **words)
    judge("pages", q, k, v, out, lse, causal=True, alibi_slopes=words["alibi_slopes"])
