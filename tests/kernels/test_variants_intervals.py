"""Masks of variants that are evaluated over whole tiles: results, and the tiles that are read.

tests/cpu/test_mask_intervals.py judges what is said of a tile; here kernels act on it.
"""

import math

import kiln
import pytest
import torch
from attention_case import AttentionCase
from grid import by_device, sized
from kiln import jit
from split_case import each_split
from storage import DEVICE
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")

WINDOW = jit.Variant("window", params={"w": "i32"}, mask="kv <= q && q - kv < w")
GLOBAL = jit.Variant(
    "global", params={"g": "i32", "w": "i32"}, mask="kv < g || q < g || abs(q - kv) < w"
)
# One that both paths serve, and one that only Hopper's takes.
MANY_HEADS = by_device(gpu=dict(heads=72, heads_kv=12), emulator=dict(heads=12, heads_kv=2))
SHAPES = {
    "few-heads": dict(heads=4, heads_kv=2, batch=2),
    "many-heads": dict(MANY_HEADS, batch=1),
}
each_shape = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(SHAPES["few-heads"], id="few-heads"),
        pytest.param(SHAPES["many-heads"], id="many-heads", marks=pytest.mark.few_multiprocessors),
    ],
)


# The first key is seen by all.
ASKS = """
struct UserVariant : UserMask {
  static constexpr bool kMasks = true, kMasksByRange = false;
  __device__ bool keep(const kiln::Position& at) const { return at.kv == 0 || UserMask::keep(at); }
  __device__ kiln::Range kv_range(const kiln::TileRows& rows) const {
    return {0, UserMask::kv_range(rows).end};
  }
  __device__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first, int kv_last) const {
    const kiln::Tile own = UserMask::tile(rows, kv_first, kv_last);
    return kv_first == 0 && own == kiln::Tile::skip ? kiln::Tile::partial : own;
  }
};
"""


def window(at, w):
    return (at.kv <= at.q) & (at.q - at.kv < w)


@each_shape
def test_a_file_asks_an_expression(shape, tmp_path):
    path = tmp_path / "asks.cuh"
    path.write_text(ASKS)
    variant = jit.Variant("asks", params={"w": "i32"}, mask="kv <= q && q - kv < w", file=path)
    case = AttentionCase(len_q=140, len_kv=333, **shape)
    run(variant(w=40), case, mask=lambda at: (at.kv == 0) | window(at, 40))


@each_shape
@pytest.mark.parametrize("len_q, len_kv, w", [(140, 333, 40), (90, 70, 1000)])
def test_a_window(shape, len_q, len_kv, w):
    case = AttentionCase(len_q=len_q, len_kv=len_kv, **shape)
    run(WINDOW(w=w), case, mask=lambda at: window(at, w))


@pytest.mark.few_multiprocessors
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("len_q, len_kv", [(200, 230), (230, 200)])  # or rows that see nothing
def test_expressions_have_the_bits_of_the_built_in_masks(dim, len_q, len_kv):
    case = AttentionCase(len_q=len_q, len_kv=len_kv, head_dim=dim, **SHAPES["many-heads"])
    q, k, v = case.inputs()
    causal = jit.Variant("causal", mask="kv <= q")
    inside = jit.Variant("inside", params={"w": "i32"}, mask="q - kv <= w")
    for variant, built_in in [
        ({"variant": causal}, {"causal": True}),
        ({"variant": WINDOW(w=70)}, {"causal": True, "window": (69, 0)}),
        ({"variant": inside(w=70), "causal": True}, {"causal": True, "window": (70, 0)}),
    ]:
        tiles = [kiln.explain("flash_attention", q, k, v, **one) for one in (variant, built_in)]
        ours, expected = (jit.flash_attention(q, k, v, **one) for one in (variant, built_in))
        assert (ours.float() - expected.float()).abs().max() < 0.02
        if tiles[1]["path"] == "sm_90a":
            assert tiles[0]["config"] == tiles[1]["config"]
            assert torch.equal(ours, expected), built_in


@each_shape
def test_runs_that_begin_at_the_first_key_are_one(shape):
    either = jit.Variant(
        "either", params={"g": "i32", "n": "i32"}, mask="(kv <= q || kv < g) && kv - row < n"
    )
    for g, n in [(90, 60), (-5, 2147483647), (2147483647, 40), (300, -2147483647)]:
        case = AttentionCase(len_q=200, len_kv=230, **shape)
        first = lambda at, g=g: (at.kv <= at.q) | (at.kv < g)  # noqa: E731
        run(either(g=g, n=n), case,
            mask=lambda at, n=n, first=first: first(at) & (at.kv - at.row < n))  # fmt: skip


@each_shape
def test_global_keys_and_rows_beside_a_window(shape):
    for g, w in [(3, 20), (70, 64)] if shape["batch"] == 2 else [(70, 20)]:
        case = AttentionCase(len_q=200, len_kv=230, **shape)
        near = lambda at, w=w: (at.q - at.kv).abs() < w  # noqa: E731
        run(GLOBAL(g=g, w=w), case,
            mask=lambda at, g=g, near=near: (at.kv < g) | (at.q < g) | near(at))  # fmt: skip


@each_split
def test_a_window_whose_keys_are_split(split):
    run(WINDOW(w=130), split, mask=lambda at: window(at, 130))
    run(WINDOW(w=0), split, mask=lambda at: window(at, 0))  # a row that sees nothing gives 0


@each_shape
def test_tiles_that_no_query_sees_are_not_read(shape):
    case = AttentionCase(len_q=70, len_kv=sized(small=640, full=4000), **shape)
    q, k, v = case.inputs()
    unread = slice(0, case.len_kv - case.len_q - 7 - 256)  # no tile has more than 256 keys
    k[:, unread] = v[:, unread] = math.nan
    out = jit.flash_attention(q, k, v, variant=WINDOW(w=7))
    assert out.isfinite().all()
    seen = k[:, -78:].nan_to_num(), v[:, -78:].nan_to_num()
    expected = jit.flash_attention(q, *seen, variant=WINDOW(w=7))
    assert (out.float() - expected.float()).abs().max() < 0.02


@each_shape
def test_unseen_tiles_between_seen_ones_are_not_read(shape):
    """They lie within the range of keys, so that only what is said of each tile leaves them out."""
    ends = jit.Variant("ends", params={"n": "i32"}, mask="kv < n || kv >= len_kv - n")
    case = AttentionCase(len_q=70, len_kv=800, **shape)
    q, k, v = case.inputs()
    k[:, 200:600] = v[:, 200:600] = math.nan
    out = jit.flash_attention(q, k, v, variant=ends(n=20))
    two = torch.cat([k[:, :20], k[:, -20:]], 1), torch.cat([v[:, :20], v[:, -20:]], 1)
    expected = jit.flash_attention(q, *two)
    assert (out.float() - expected.float()).abs().max() < 0.02


@pytest.mark.parametrize("cache", [torch.bfloat16, torch.float8_e4m3fn], ids=["bf16", "e4m3"])
def test_tiles_far_apart(cache):
    """Hopper's walk reaches the second one after more steps than its ring holds, and a warpgroup
    without queries waits at the first."""
    ends = jit.Variant("ends", params={"n": "i32"}, mask="kv < n || kv >= len_kv - n")
    len_q, len_kv, n, dim = 385, 30000, 40, 64  # the last tile of 128 or 192 queries has one
    torch.manual_seed(0)
    q = torch.randn(len_q, 4, dim, dtype=torch.bfloat16, device=DEVICE)
    k, v = torch.randn(2, len_kv, 2, dim, dtype=torch.bfloat16, device=DEVICE).to(cache)
    one = torch.ones(1, device=DEVICE)
    scales = {} if cache == q.dtype else {"k_scale": one, "v_scale": one}
    starts = [torch.tensor([0, end], dtype=torch.int32, device=DEVICE) for end in (len_q, len_kv)]
    words = dict(
        cu_seqlens_q=starts[0], cu_seqlens_k=starts[1], max_seqlen_q=len_q, max_seqlen_k=len_kv,
        variant=ends(n=n), **scales,
    )  # fmt: skip
    out = jit.flash_attention_varlen(q, k, v, **words)
    seen = (torch.cat([x[:n], x[-n:]])[None].to(q.dtype) for x in (k, v))
    expected = jit.flash_attention(q[None], *seen)[0]
    assert (out.float() - expected.float()).abs().max() < 0.05


def test_a_key_is_seen_up_to_its_sequences_length():
    """The elements of a tensor of the sequence are known of every tile."""
    shorter = jit.Variant("shorter", tensors={"length": "i32[b]"}, mask="kv < length && kv <= q")
    case = AttentionCase(len_q=60, len_kv=600, batch=2, heads=4, heads_kv=2)
    q, k, v = case.inputs()
    length = torch.tensor([600, 30], dtype=torch.int32, device=DEVICE)
    k[1, 300:] = v[1, 300:] = math.nan
    out = jit.flash_attention(q, k, v, variant=shorter(length=length))
    assert out.isfinite().all()
    expected = jit.flash_attention(q[1:], k[1:, :30], v[1:, :30])
    assert (out[1:].float() - expected.float()).abs().max() < 0.02


def test_sequences_of_their_own_lengths():
    lengths_q, lengths_k = [1, 70, 0, 33], [300, 70, 20, 500]
    heads, dim, w = 4, 64, 20
    torch.manual_seed(0)
    q = torch.randn(sum(lengths_q), heads, dim, dtype=torch.bfloat16, device=DEVICE)
    k, v = torch.randn(2, sum(lengths_k), 2, dim, dtype=torch.bfloat16, device=DEVICE)

    def offsets(lengths):
        ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return ends.to(DEVICE)

    out = jit.flash_attention_varlen(
        q, k, v, cu_seqlens_q=offsets(lengths_q), cu_seqlens_k=offsets(lengths_k),
        max_seqlen_q=max(lengths_q), max_seqlen_k=max(lengths_k), variant=WINDOW(w=w),
    )  # fmt: skip
    built_in = jit.flash_attention_varlen(
        q, k, v, cu_seqlens_q=offsets(lengths_q), cu_seqlens_k=offsets(lengths_k),
        max_seqlen_q=max(lengths_q), max_seqlen_k=max(lengths_k), window=(w - 1, 0),
    )  # fmt: skip
    assert (out.float() - built_in.float()).abs().max() < 0.02


@pytest.mark.emulated
def test_a_window_on_the_portable_path():
    with kiln.device("emulator:sm_80"):
        case = AttentionCase(len_q=140, len_kv=333, heads=4, heads_kv=2)
        run(WINDOW(w=40), case, mask=lambda at: window(at, 40))
        test_unseen_tiles_between_seen_ones_are_not_read(SHAPES["few-heads"])


def test_explain_says_whether_tiles_are_skipped():
    q = torch.zeros(1, 64, 2, 64, dtype=torch.bfloat16, device=DEVICE)

    def why(variant):  # the sentences of the answer
        return kiln.explain("flash_attention", q, q, q, variant=variant)["why"]

    skipped = "the variant's mask is evaluated over intervals too: tiles that it hides are skipped"
    assert any(reason.startswith(skipped) for reason in why(WINDOW(w=3)))
    allowed = torch.ones(2, 64, dtype=torch.bool, device=DEVICE)
    element = jit.Variant("element", tensors={"allowed": "bool[h, kv]"}, mask="allowed")
    assert any("tensor element 'allowed' cannot be read" in reason
               for reason in why(element(allowed=allowed)))  # fmt: skip
