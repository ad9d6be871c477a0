"""kiln.variants: each against the same rule as a dense mask or bias in PyTorch."""

import math

import kiln
import numpy as np
import pytest
import torch
from attention_case import AttentionCase
from grid import by_device, sized
from kiln import jit, variants
from storage import DEVICE, randn
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")

LENGTH = sized(small=90, full=650)
SHAPE = dict(batch=2, heads=4, heads_kv=2, len_q=LENGTH, len_kv=LENGTH)
LATE = {**SHAPE, "len_q": LENGTH - 37}  # the queries are the last positions
CUT = LENGTH // 3
LONG = sized(small=300, full=1300)

MASKS = {
    "prefix": (variants.prefix_lm(CUT), LATE, lambda at: (at.kv <= at.q) | (at.kv < CUT)),
    "window": (variants.sliding_window(17), LATE, lambda at: (at.kv <= at.q) & (at.q - at.kv < 17)),
    "dilated": (
        variants.dilated_window(9, 3),
        LATE,
        lambda at: (at.kv <= at.q) & (at.q - at.kv < 27) & ((at.q - at.kv) % 3 == 0),
    ),
    "chunked": (
        variants.chunked(32),
        LATE,
        lambda at: (at.kv <= at.q) & (at.q // 32 == at.kv // 32),
    ),
    "global": (
        variants.global_window(5, 11),
        LATE,
        lambda at: (at.kv < 5) | (at.q < 5) | ((at.q - at.kv).abs() <= 11),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_of_numbers(name):
    variant, shape, rule = MASKS[name]
    run(variant, AttentionCase(**shape), mask=rule)


def test_a_prefix_for_each_sequence():
    prefix = torch.tensor([0, CUT], dtype=torch.int32, device=DEVICE)
    run(variants.prefix_lm(prefix), AttentionCase(**SHAPE),
        mask=lambda at: (at.kv <= at.q) | (at.kv < prefix[:, None, None, None]))  # fmt: skip


def test_documents():
    ids = torch.arange(LENGTH, device=DEVICE, dtype=torch.int32) // 23
    ids = torch.stack([ids, (ids * 7) % 5])
    run(variants.documents(ids), AttentionCase(**SHAPE),
        mask=lambda at: ids[:, None, :, None] == ids[:, None, None, :])  # fmt: skip


def test_bounds_are_explained_ahead_of_attention():
    """As they are launched."""
    q, k, v = AttentionCase(**SHAPE).inputs()
    ids = torch.zeros([2, LENGTH], dtype=torch.int32, device=DEVICE)
    explained = kiln.explain("flash_attention", q, k, v, variant=variants.documents(ids))
    ops = [launch["spec"]["op"] for launch in explained["launches"]]
    assert ops == ["bound_elements", "flash_attention"]
    assert explained["op"] == "flash_attention"


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("missing", [0, 37])
def test_documents_read_no_tile_of_others(missing, is_given):
    """Numbers in order, and in none: bounds say only what a block of positions may hold."""
    length = 640
    place = torch.arange(length, device=DEVICE, dtype=torch.int32)
    ids = torch.stack([place // 320, place * 7 % 5])
    bounds = variants.document_bounds(ids) if is_given else None
    bound = variants.documents(ids, bounds)
    case = AttentionCase(batch=2, heads=2, heads_kv=1, len_q=length - missing, len_kv=length)
    run(bound, case, mask=lambda at: ids[:, None, missing:, None] == ids[:, None, None, :])
    q, k, v = case.inputs()
    v[0, :128] = math.nan  # of the first document, as are all keys of these tiles
    out = jit.flash_attention(q, k, v, variant=bound)
    assert out[0, 512 - missing :].isfinite().all()


def test_queries_ahead_of_all_positions_are_of_the_first_document():
    ids = (torch.arange(60, device=DEVICE, dtype=torch.int32) // 20)[None]
    bound = variants.documents(ids, variants.document_bounds(ids))
    case = AttentionCase(batch=1, heads=4, heads_kv=2, len_q=170, len_kv=60)
    own = torch.cat([ids.new_zeros(1, 110), ids], 1)
    run(bound, case, mask=lambda at: own[:, None, :, None] == ids[:, None, None, :])


def test_documents_of_sequences_take_bounds():
    """Each sequence ends at another key, so that no tensor is indexed by a query's position."""
    starts, lengths = torch.tensor([0, 40, 100]), (60, 90)
    ids = torch.stack([torch.arange(90), torch.arange(90) * 2]).int().to(DEVICE) // 20
    q = randn([100, 4, 64], torch.float16, 3)
    k, v = (randn([2, 90, 2, 64], torch.float16, seed) for seed in (4, 5))
    arguments = dict(
        cu_seqlens_q=starts.int().to(DEVICE), seqused_k=torch.tensor(lengths).int().to(DEVICE),
        max_seqlen_q=60, max_seqlen_k=90,
    )  # fmt: skip
    with pytest.raises(ValueError, match="sequences end at different keys"):
        jit.flash_attention_varlen(q, k, v, variant=variants.documents(ids), **arguments)
    bound = variants.documents(ids, variants.document_bounds(ids))
    out = jit.flash_attention_varlen(q, k, v, variant=bound, **arguments)
    for entry, length in enumerate(lengths):
        rows = slice(*starts[entry : entry + 2])
        queries = q[rows].transpose(0, 1).float()
        keys, values = (
            x[entry, :length].transpose(0, 1).repeat_interleave(2, 0).float() for x in (k, v)
        )
        own = ids[entry, :length]
        mask = own[-queries.size(1) :, None] == own[None]
        expected = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)
        torch.testing.assert_close(
            out[rows].float(), expected.transpose(0, 1), rtol=2e-2, atol=2e-3
        )


def test_document_bounds_are_of_the_same_positions():
    ids = torch.zeros(1, 130, dtype=torch.int32, device=DEVICE)
    assert variants.document_bounds(ids).shape == (1, 3, 2)
    with pytest.raises(ValueError, match=r"document_bounds\(ids\), \[1, 3, 2\] here, got"):
        variants.documents(ids, variants.document_bounds(ids[:, :128]))


def test_a_neighborhood_keeps_its_size_at_the_borders():
    width, height = sized(small=(9, 10), full=(26, 25))
    reach = 2
    positions = torch.arange(width * height, device=DEVICE)
    y, x = positions // width, positions % width
    center_y, center_x = y.clamp(reach, height - 1 - reach), x.clamp(reach, width - 1 - reach)
    near = (center_y[:, None] - y).abs() <= reach
    near &= (center_x[:, None] - x).abs() <= reach
    assert (near.sum(1) == (2 * reach + 1) ** 2).all()
    case = AttentionCase(**{**SHAPE, "len_q": width * height, "len_kv": width * height})
    run(variants.neighborhood_2d(width, reach), case, mask=lambda at: near)


@pytest.mark.parametrize(
    "planes, dtype, len_q", [(1, torch.bool, LONG), (2, torch.uint8, LONG - 37), (2, torch.bool, 1)]
)
def test_blocks_that_a_table_lists(planes, dtype, len_q):
    """K and V are NaN where no query sees a tile of keys: those are not read."""
    size, length = 32, LONG
    shape = {**SHAPE, "len_q": len_q, "len_kv": length}
    count = -(-length // size)
    blocks = (randn([planes, count, count], torch.float32, 9) > 0.5).to(dtype)
    blocks[:, :, : count // 2] = 0
    blocks[:, :, -1] = 1

    def mask(at):
        planes_of_heads = torch.arange(4, device=DEVICE)[:, None, None] // 2 % planes
        return blocks[planes_of_heads, at.q[0] // size, at.kv[0] // size] != 0

    run(variants.block_sparse(blocks, size), AttentionCase(**shape), mask=mask)
    q, k, v = AttentionCase(**shape).inputs()
    clean = jit.flash_attention(q, k, v, variant=variants.block_sparse(blocks, size))
    unseen = count // 2 * size // 128 * 128
    k[:, :unseen] = v[:, :unseen] = torch.nan
    out = jit.flash_attention(q, k, v, variant=variants.block_sparse(blocks, size))
    assert torch.equal(out, clean)


def test_queries_ahead_of_all_blocks_are_of_the_first():
    blocks = torch.tensor([[[1, 1, 0], [0, 1, 1], [0, 0, 1]]], dtype=torch.bool, device=DEVICE)
    case = AttentionCase(**{**SHAPE, "len_q": 300, "len_kv": 130})

    def mask(at):
        return blocks[0, at.q[0].clamp(min=0) // 64, at.kv[0] // 64]

    run(variants.block_sparse(blocks, 64), case, mask=mask)


def test_blocks_that_are_no_table():
    with pytest.raises(ValueError, match="size must be 16 or more, got 8"):
        variants.block_sparse(torch.ones(1, 2, 2, dtype=torch.bool), 8)
    with pytest.raises(ValueError, match="blocks must have 3 dimensions"):
        variants.block_sparse(torch.ones(2, 2, dtype=torch.bool))


def test_alibi_and_softcap():
    slopes = torch.rand(4, device=DEVICE)
    run(variants.alibi(slopes), AttentionCase(**LATE),
        logits=lambda s, at: s - slopes[:, None, None] * (at.q - at.kv).abs())  # fmt: skip
    run(variants.softcap(2.0), AttentionCase(**LATE), logits=lambda s, at: 2 * torch.tanh(s / 2))


# Tiles within the reach, beyond it on both sides and across its ends; many heads are for wgmma.
@pytest.mark.parametrize("reach, heads", [(0, 4), (20, 4), (0, 35), (20, 35), (400, 4), (400, 35)])
@pytest.mark.parametrize("causal, scale", [(False, None), (True, -0.2)])
def test_a_bias_by_distance(reach, heads, causal, scale):
    bias = randn([2 * reach + 1, heads], torch.float32, 6).T  # its distances lie apart
    shape = dict(heads=heads, heads_kv=heads, len_q=LONG - 37, len_kv=LONG)
    case = AttentionCase(**shape, causal=causal, scale=scale)
    run(variants.relative_bias(bias), case, logits=lambda s, at: s
        + bias[:, (at.kv - at.q).squeeze().clamp(-reach, reach) + reach])  # fmt: skip


def test_a_bias_by_distance_among_others():
    """Of a list, and beside other options, it is added like any code."""
    bias = randn([4, 41], torch.float32, 6)
    case = AttentionCase(**LATE, softcap=3.0)

    def added(s, at):
        return s + bias[:, (at.kv - at.q).squeeze().clamp(-20, 20) + 20]

    run(variants.relative_bias(bias), case, logits=added)
    run([variants.relative_bias(bias), variants.softcap(2.0), variants.sliding_window(30)],
        AttentionCase(**LATE), logits=lambda s, at: 2 * torch.tanh(added(s, at) / 2),
        mask=lambda at: (at.q >= at.kv) & (at.q - at.kv < 30))  # fmt: skip


@pytest.mark.few_multiprocessors
@pytest.mark.parametrize("head_dim", [64, 128])
def test_a_bias_by_distance_within_documents(head_dim):
    heads = by_device(gpu=70, emulator=8)
    bias = randn([heads, 41], torch.float32, 6)
    case = AttentionCase(heads=heads, heads_kv=heads // 2, head_dim=head_dim, batch=1, len_q=130,
                         len_kv=430, causal=True)  # fmt: skip
    ids = (torch.arange(430, device=DEVICE, dtype=torch.int32) // 150)[None]
    run([variants.documents(ids), variants.relative_bias(bias)], case,
        logits=lambda s, at: s + bias[:, (at.kv - at.q).squeeze().clamp(-20, 20) + 20],
        mask=lambda at: ids[0, at.q] == ids[0, at.kv])  # fmt: skip


def test_a_bias_by_distance_has_a_middle():
    bias = randn([4, 8], torch.float32, 6)
    with pytest.raises(ValueError, match="an odd number of distances, 2 \\* reach \\+ 1, got 4"):
        variants.relative_bias(bias[:, :4])
    with pytest.raises(ValueError, match="less than 4 GiB in a head, and its stride"):
        variants.relative_bias(torch.empty_strided((1, 3), (1, 1 << 29), device="meta"))
    with pytest.raises(ValueError, match="its stride must not be negative"):
        variants.relative_bias(np.zeros((4, 7), np.float32)[:, ::-1])


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5(bidirectional):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    weights = randn([4, 32], torch.float32, 7)
    shape = dict(batch=1, heads=4, heads_kv=4, len_q=300, len_kv=300, causal=not bidirectional)
    at = torch.arange(300)
    buckets = t5.T5Attention._relative_position_bucket(at[None] - at[:, None], bidirectional)
    run(variants.t5_bias(weights, bidirectional=bidirectional), AttentionCase(**shape),
        logits=lambda s, at: s + weights[:, buckets.to(DEVICE)])  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_and_a_mask_of_every_pair(dtype):
    bias = randn([1, 4, LATE["len_q"], LENGTH], dtype, 4)
    run(variants.additive_bias(bias), AttentionCase(**LATE), logits=lambda s, at: s + bias.to(s))
    visible = randn([2, 1, LATE["len_q"], LENGTH], torch.float32, 5) > 0
    run(variants.boolean_mask(visible), AttentionCase(**LATE), mask=lambda at: visible)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: variants.prefix_lm(-1), "prefix must be 0 or more, got -1"),
        (lambda: variants.sliding_window(0), "size must be 1 or more, got 0"),
        (lambda: variants.dilated_window(4, 0), "dilation must be 1 or more, got 0"),
        (lambda: variants.neighborhood_2d(4, 2), "width must be 5 or more, got 4"),
        (lambda: variants.softcap(math.nan), "cap must be a number greater than 0, got nan"),
    ],
)
def test_a_number_that_makes_no_variant(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: variants.t5_bias(torch.zeros(4, 2)), "weights must have 4 buckets or more, got 2"),
        (lambda: variants.t5_bias(torch.zeros(4, 1), bidirectional=False), "2 buckets or more"),
        (lambda: variants.t5_bias(torch.zeros(4, 32), max_distance=8), "must be greater than 8"),
        (lambda: variants.t5_bias(torch.zeros(4)), "weights must have 2 dimensions"),
        (lambda: variants.relative_bias(torch.zeros(5)), "bias must have 2 dimensions"),
        (lambda: variants.document_bounds(torch.zeros(4)), "ids must have 2 dimensions"),
        (lambda: variants.softcap("a"), "cap must be a number greater than 0, got 'a'"),
    ],
)
def test_tensors_and_numbers_that_make_no_variant(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_arguments_of_another_type_are_named():
    with pytest.raises(TypeError, match=r"prefix must be an int or an int32 tensor \[batch\]"):
        variants.prefix_lm(3.5)
    with pytest.raises(TypeError, match=r"ids must be a torch\.Tensor, got ndarray"):
        variants.document_bounds(np.zeros((1, 4), np.int32))


def test_a_bias_of_another_type():
    with pytest.raises(TypeError, match="bias must be a float32, float16 or bfloat16 tensor"):
        variants.additive_bias(torch.zeros([1, 1, 4, 4], dtype=torch.int32))
