"""Masks that read tensors, on the sm_90a path: the scheduler searches the keys that tile() skips,
query tiles are drawn, and keep() is asked about partial tiles alone."""

import grid
import kiln
import pytest
import torch
from attention_case import AttentionCase
from grid import sized
from kiln import jit, variants
from storage import DEVICE, randn
from variant_case import run

pytestmark = [
    pytest.mark.usefixtures("device"),
    pytest.mark.few_multiprocessors,
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

# Query tiles enough that no keys are split, and more than there are multiprocessors.
HEADS = grid.by_device(gpu=dict(heads=70, heads_kv=35), emulator=dict(heads=8, heads_kv=4))
# Half as many heads, for each of two entries.
HALF = grid.by_device(gpu=34, emulator=4)


def ids_of(lengths):
    numbers = torch.arange(len(lengths), dtype=torch.int32)
    return torch.repeat_interleave(numbers, torch.tensor(lengths)).to(DEVICE)


def random_lengths(length, count, seed):
    ends = (randn([count - 1], torch.float32, seed).abs() * length / 2).int() % (length - 1) + 1
    ends = sorted({*ends.tolist(), length})
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def documents(ids):
    return variants.documents(ids, variants.document_bounds(ids))


@pytest.mark.parametrize("head_dim, causal", [(8, False), (128, True)])
def test_documents_of_random_lengths(head_dim, causal):
    """More than 32 tiles of keys, so that they are searched; of the second entry, all are one
    document's, of the first the last queries see a tenth of the keys."""
    length = sized(small=4140 if head_dim == 8 else 2600, full=9000)
    len_q = sized(small=200, full=2000)
    first = [*random_lengths(length - length // 10, 5, 3), length // 10]
    ids = torch.stack([ids_of(first), torch.zeros(length, dtype=torch.int32, device=DEVICE)])
    case = AttentionCase(batch=2, heads=HALF, heads_kv=HALF, head_dim=head_dim, head_dim_v=8,
                         len_q=len_q, len_kv=length, causal=causal)  # fmt: skip
    q, k, v = case.inputs()
    bound = documents(ids)
    why = kiln.explain("flash_attention", q, k, v, variant=bound, causal=causal)
    assert why["path"] == "sm_90a" and why["splits"] == 1
    run(bound, case, mask=lambda at: ids[:, None, -len_q:, None] == ids[:, None, None, :])


def test_keys_at_both_ends():
    """What lies between is skipped; the second document is no run of keys."""
    length, len_q = 32 * 128 + 100, 200
    ids = torch.ones(1, length, dtype=torch.int32, device=DEVICE)
    ids[:, 90:100] = ids[:, 4096:] = 2
    case = AttentionCase(head_dim=8, head_dim_v=8, len_q=len_q, len_kv=length, **HEADS)
    q, k, v = case.inputs()
    assert kiln.explain("flash_attention", q, k, v, variant=documents(ids))["splits"] == 1
    run(documents(ids), case, mask=lambda at: ids[:, None, -len_q:, None] == ids[:, None, None, :])


def test_repeats_draw_tiles_again():
    """The counter of one launch is left as the next one wants it, whatever ends first. One row of
    numbers stands for both entries."""
    length = sized(small=260, full=3000)
    ids = ids_of(random_lengths(length, 4, 8))[None]
    case = AttentionCase(batch=2, head_dim=64, head_dim_v=8, len_q=length, len_kv=length,
                         causal=True, **HEADS)  # fmt: skip
    q, k, v = case.inputs()
    bound = documents(ids)
    first, _ = run(bound, case, mask=lambda at: ids[:, None, :, None] == ids[:, None, None, :])
    for _ in range(sized(small=2, full=50)):
        assert torch.equal(jit.flash_attention(q, k, v, causal=True, variant=bound), first)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_tiles_of_masks_that_read_tensors(head_dim):
    """Masks alone leave registers; of wide heads, those that show most tiles whole."""
    length = 2112
    case = AttentionCase(head_dim=head_dim, head_dim_v=head_dim, len_q=length, len_kv=length,
                         **HEADS)  # fmt: skip
    q, k, v = case.inputs()
    ids = torch.zeros(1, length, dtype=torch.int32, device=DEVICE)
    shown = torch.ones(1, 1, 1, length, dtype=torch.bool, device=DEVICE)
    blocks = torch.ones(1, 33, 33, dtype=torch.bool, device=DEVICE)
    bias = randn([HEADS["heads"], length], torch.float32, 1)
    biased = jit.Variant("biased", tensors={"bias": "f32[h, kv]"}, logits="logit + bias")
    names = ("least", "own", "most")
    three = jit.Variant(
        "three", tensors=dict.fromkeys(names, "i32[b, kv]"), mask="least <= own && own <= most"
    )

    def tile_of(variant):
        return kiln.explain("flash_attention", q, k, v, variant=variant, causal=True)["config"]

    heavy = {64: "128x128x2", 128: "128x96x2"}[head_dim]
    documents_tile = {64: "192x128x2", 128: "192x64x2"}[head_dim]
    for mask in (documents(ids), variants.documents(ids)):
        assert tile_of(mask) == documents_tile
    for mask in (variants.block_sparse(blocks), variants.boolean_mask(shown)):
        assert tile_of(mask) == (documents_tile if head_dim == 64 else heavy)
    # Code at every logit and masks of many tensors need more registers.
    for mask in ([documents(ids), biased(bias=bias)], three(**dict.fromkeys(names, ids))):
        assert tile_of(mask) == heavy


@pytest.mark.parametrize(
    "head_dim, beside, tile",
    [
        (128, "tilt", "192x64x2"),
        (64, "tilt", "192x128x2"),
        (128, "bias", "128x128x2"),
        (64, "bias", "128x128x2"),
        (128, "cap", "128x96x2"),  # code at every logit
    ],
)
def test_tiles_of_documents_beside_other_variants(head_dim, beside, tile):
    q = torch.empty(1, 4096, 16, head_dim, dtype=torch.bfloat16, device=DEVICE)
    ids = torch.zeros(1, 4096, dtype=torch.int32, device=DEVICE)
    other = {
        "tilt": lambda: variants.alibi(torch.ones(16, device=DEVICE)),
        "bias": lambda: variants.relative_bias(torch.ones(16, 257, device=DEVICE)),
        "cap": lambda: variants.softcap(20.0),
    }[beside]()
    found = kiln.explain(
        "flash_attention", q, q, q, causal=True, variant=[variants.documents(ids), other]
    )
    assert found["config"] == tile


# Masks whose kernels read elements ahead of conditions, or compute their addresses by one
# instruction each, as they would spill: the words, and the pairs that they show.
SAME = {"mine": "i32[b, q]", "its": "i32[b, kv]"}
CLOSE = {
    "documents": (dict(tensors=SAME, mask="mine == its"), "causal",
                  lambda mine, its, at: mine == its),
    "expression": (dict(tensors=SAME, mask="kv <= q && mine == its"), "none",
                   lambda mine, its, at: (mine == its) & (at.kv <= at.q)),
    "table": (dict(tensors={"doc": "i32[b, *]"}, mask="kv <= q && doc(b, q) == doc(b, kv)"),
              "none", lambda mine, its, at: (mine == its) & (at.kv <= at.q)),
    "window": (dict(tensors={"doc": "i32[b, *]"}, mask="kv <= q && doc(b, q) == doc(b, kv)"),
               "window", lambda mine, its, at: (mine == its) & (at.kv <= at.q)),
    "choice": (dict(tensors={"doc": "i32[b, *]"},
                    mask="doc(b, kv) > 1 ? doc(b, q) >= doc(b, kv) : kv <= q || row < 9"), "none",
               lambda mine, its, at: torch.where(its > 1, mine >= its,
                                                 (at.kv <= at.q) | (at.row < 9))),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSE)
def test_elements_beside_products_that_fill_the_registers(name):
    words, mask, shows = CLOSE[name]
    length, batch = 384, 2  # a multiple of 192
    case = AttentionCase(batch=batch, heads=HALF, heads_kv=HALF // 2, head_dim=64, head_dim_v=64,
                         len_q=length, len_kv=length, causal=mask == "causal",
                         window=(300, 30) if mask == "window" else (-1, -1))  # fmt: skip
    lines = [ids_of(random_lengths(length, 5, seed)) for seed in (4, 11)]
    ids = torch.stack(lines)[:, :, None].expand(-1, -1, 3).contiguous()[:, :, 1]  # strides of 3
    bound = jit.Variant(name, **words)(**dict.fromkeys(words["tensors"], ids))
    q, k, v = case.inputs()
    found = kiln.explain("flash_attention", q, k, v, causal=case.causal, window=case.window,
                         variant=bound)  # fmt: skip
    assert found["config"] == "192x128x2"
    mine, its = ids[:, None, :, None], ids[:, None, None, :]
    run(bound, case, mask=lambda at: shows(mine, its, at))
