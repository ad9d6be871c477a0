"""jit.flex_attention with a BlockMask: its lists decide what is computed."""

import copy

import grid
import kiln
import pytest
import torch
from flex_case import WITH_LSE, compiles, expected, inputs, judge, run
from grid import on_gpu
from kiln import jit
from kiln.flex.blocks import NO_TABLES, tables_of
from kiln.flex.plan import bound_variant
from storage import DEVICE
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

pytestmark = pytest.mark.usefixtures("device")
if not on_gpu():
    torch.set_num_threads(1)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def of_heads(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() <= 12 * h + 5 * b


KEYS = (torch.arange(151) * 7 % 5).to(DEVICE)


def of_keys(b, h, q_idx, kv_idx):
    return (KEYS[kv_idx] + q_idx) % 3 != b


NUMBERS = (torch.arange(330) // 90).int().to(DEVICE)


def of_documents(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (NUMBERS[q_idx] == NUMBERS[kv_idx])


def made(mask_mod, batch, heads, len_q, len_kv, size):
    return create_block_mask(mask_mod, batch, heads, len_q, len_kv, device=DEVICE, BLOCK_SIZE=size)


@pytest.mark.parametrize(
    "mask_mod, batch, heads, len_q, len_kv, size",
    [
        (causal, None, None, 200, 200, 128),
        (of_heads, 2, 4, 130, 150, (32, 16)),  # rows that see nothing; tiles of many blocks
        (of_heads, 2, 4, 3, 300, 128),  # tiles of several heads
        (of_heads, 1, 4, 90, 333, (48, 7)),
        (of_keys, 2, 4, 70, 151, (32, 10)),  # pairs of keys, of which the last one is alone
    ],
)
def test_the_blocks_of_a_mask(mask_mod, batch, heads, len_q, len_kv, size):
    shown = mask_mod if batch != 1 else lambda b, h, q_idx, kv_idx: mask_mod(0, h, q_idx, kv_idx)
    block_mask = made(shown, batch, heads, len_q, len_kv, size)
    run(inputs(len_q=len_q, len_kv=len_kv), None, shown, block_mask)


def random_lists(batch, heads, rows, columns, seed):
    """Lists of random blocks, and garbage behind their ends; and what each block is."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randint(0, 3, (batch, heads, rows, columns), generator=generator)

    def listed(state):
        counts = (states == state).sum(-1)
        order = torch.argsort((states == state).int(), dim=-1, descending=True, stable=True)
        behind = torch.arange(columns) >= counts[..., None]
        garbage = torch.randint(-(2**31), 2**31, states.shape, generator=generator)
        return counts.int().to(DEVICE), torch.where(behind, garbage, order).int().to(DEVICE)

    return states.to(DEVICE), (*listed(1), *listed(2))


def block_mask_of(lists, lengths, size, mask_mod):
    return BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=lengths, compute_q_blocks=False
    )


def check_states(tensors, states, size, block_mask, score_mod=None):
    def shown(b, h, q_idx, kv_idx):
        state = states[b, h, q_idx // size[0], kv_idx // size[1]]
        return (state == 2) | ((state == 1) & block_mask.mask_mod(b, h, q_idx, kv_idx))

    run(tensors, score_mod, shown, block_mask)


def test_lists_decide_even_against_the_mask_and_may_be_rewritten():
    """A block that is in no list is not seen, one in the full list is seen whole. What a score
    hides is hidden in full blocks too."""
    size, lengths = (64, 32), (150, 210)

    def score_mod(score, b, h, q_idx, kv_idx):
        return torch.where((q_idx + kv_idx) % 3 == h % 3, -float("inf"), score * 1.5)

    states, lists = random_lists(2, 4, 3, 7, seed=1)
    block_mask = block_mask_of(lists, lengths, size, of_heads)
    tensors = inputs(len_q=150, len_kv=210)
    check_states(tensors, states, size, block_mask, score_mod)
    first = compiles()
    other_states, other_lists = random_lists(2, 4, 3, 7, seed=2)
    for tensor, other in zip(lists, other_lists, strict=True):
        tensor.copy_(other)
    check_states(tensors, other_states, size, block_mask, score_mod)
    block_mask.full_kv_num_blocks = lists[2] * 0
    without_full = torch.where(other_states == 2, 0, other_states)
    check_states(tensors, without_full, size, block_mask, score_mod)
    check_states(tensors, without_full, size, copy.deepcopy(block_mask), score_mod)
    assert compiles() == first


@pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone")
@pytest.mark.few_multiprocessors
@pytest.mark.parametrize("size", [(128, 128), (64, 256), (32, 64), (128, 32)])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("mask_mod", [of_heads, causal, of_documents])
def test_tiles_within_blocks(size, dim, mask_mod):
    """In a tile within one block, the mask alone is asked about a partial block, over intervals and
    pair by pair, and nothing about a full one, not even where the last tile reaches behind the
    keys."""
    lengths = (200, 330)
    rows, columns = (-(-length // part) for length, part in zip(lengths, size, strict=True))
    heads = grid.by_device(gpu=70, emulator=8)
    states, lists = random_lists(1, heads, rows, columns, seed=3)
    tensors = inputs(batch=1, heads=heads, heads_kv=heads // 2, len_q=200, len_kv=330, dim=dim)
    check_states(tensors, states, size, block_mask_of(lists, lengths, size, mask_mod))


def test_the_scores_of_blocks_are_an_expression_that_is_read():
    """A soft cap is one, beside a BlockMask and without, whose factors the scales take."""
    cap, slopes = 3.0, torch.tensor([0.5, 0.25, 0.5, 1.0], device=DEVICE)

    def capped(score, b, h, q_idx, kv_idx):
        return cap * torch.tanh(score / cap)

    def of_slopes(b, h, q_idx, kv_idx):
        return (q_idx - kv_idx) * slopes[h] >= cap

    q, k, v = inputs(len_q=90, len_kv=150)
    block_mask = made(of_slopes, 2, 4, 90, 150, 64)
    for blocks in (None, block_mask):
        run((q, k, v), capped, of_slopes, blocks)
        tables = NO_TABLES if blocks is None else tables_of(blocks, q, k)
        variant = bound_variant(capped, of_slopes, blocks and (64, 64), tables)
        spec = kiln.explain("flash_attention", q, k, v, layout="bhsd", variant=variant)["spec"]
        (kernel,) = kiln.inspect(spec, "sm_90a")
        assert "cap_before(" in kernel["source"]


@pytest.mark.parametrize("shown", [causal, None])
def test_lists_of_heads_that_are_computed_together(shown):
    """Few queries make tiles of several heads, whose blocks differ from what the mask says."""
    states, lists = random_lists(2, 4, 1, 5, seed=4)
    block_mask = block_mask_of(lists, (3, 300), (64, 64), shown)
    check_states(inputs(len_q=3, len_kv=300), states, (64, 64), block_mask)


def test_lists_without_a_mask_for_all_heads():
    states, lists = random_lists(1, 1, 2, 4, seed=3)
    block_mask = BlockMask.from_kv_blocks(
        *lists[:2], BLOCK_SIZE=(64, 64), seq_lengths=(100, 250), compute_q_blocks=False
    )
    tensors = inputs(len_q=100, len_kv=250)
    run(
        tensors, None,
        lambda b, h, q_idx, kv_idx: states[0, 0, q_idx // 64, kv_idx // 64] == 1, block_mask,
    )  # fmt: skip


def test_inference_tensors_are_read_at_every_call():
    """They do not count what is written to them."""
    tensors = inputs(batch=1, len_q=64, len_kv=64)
    with torch.inference_mode():
        counts = torch.ones(1, 1, 1, dtype=torch.int32, device=DEVICE)
        block_mask = BlockMask.from_kv_blocks(
            counts, counts * 0, BLOCK_SIZE=64, compute_q_blocks=False
        )
        assert jit.flex_attention(*tensors, block_mask=block_mask, enable_gqa=True).any()
        counts.zero_()
        assert not jit.flex_attention(*tensors, block_mask=block_mask, enable_gqa=True).any()


@pytest.mark.parametrize("len_q", [1, 70])
def test_what_no_row_sees_is_not_read(len_q):
    """Keys that are far from every visible block are NaN, and so are their values."""

    def ends(b, h, q_idx, kv_idx):
        return (kv_idx < 100) | (kv_idx >= 900)

    q, k, v = inputs(batch=1, heads=2, heads_kv=1, len_q=len_q, len_kv=1000)
    clean = expected(q, k, v, None, ends)
    k[:, :, 384:704], v[:, :, 384:704] = torch.nan, torch.nan
    block_mask = made(ends, None, None, len_q, 1000, 128)
    found = jit.flex_attention(q, k, v, block_mask=block_mask, enable_gqa=True, return_aux=WITH_LSE)
    judge(found, clean)
