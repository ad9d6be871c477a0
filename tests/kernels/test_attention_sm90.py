"""The sm_90a path of attention: problems large enough to be given to it, and what is its own: query
tiles dealt to persistent blocks, tiles of keys that only some warpgroups see, tensor maps."""

import math

import grid
import kiln
import pytest
import torch
from attention_case import OPTIONS, AttentionCase, judge
from case_group import CaseGroup
from grid import sized
from kiln import jit
from reference import attention
from storage import DEVICE, randn
from variant_case import run

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

DIMS = [(64, 64), (80, 80), (96, 96), (128, 128), (160, 160), (192, 192), (256, 256), (192, 128)]
ODD_DIMS = [(8, 8), (40, 40), (72, 104), (64, 128), (200, 136)]
MASKS = {"full": {}, "causal": {"causal": True}, "window": {"window": (100, 30)}}
# Tiles enough that the portable kernel's splits are no alternative; and more than there are
# multiprocessors, so that a block computes several.
HEADS = dict(heads=72, heads_kv=12)
MANY = dict(heads=140, heads_kv=35)


class Sm90Group(CaseGroup):
    def check(self):
        for case in self.cases:
            assert case.explain()["path"] == "sm_90a", f"{case} takes another path"
        super().check()


def shape_groups():
    """Small, a head dim has one of three masks; they and the dtypes take turns."""
    for at, (dim, dim_v) in enumerate(DIMS + ODD_DIMS):
        for kind, (name, mask) in enumerate(MASKS.items()):
            if kind != at % 3 and not grid.is_full():
                continue
            dtype = ("bf16", "f16")[(at + kind) % 2]
            shapes = sized(
                small=[(100, 130)],
                full=[(200, 230), (230, 200), (129, 1000), (385, 129), (1000, 1000), (1100, 4100)],
            )
            cases = tuple(
                AttentionCase(dtype=dtype, head_dim=dim, head_dim_v=dim_v, len_q=len_q,
                              len_kv=len_kv, batch=1 + i % 2, **HEADS, **mask)
                for i, (len_q, len_kv) in enumerate(shapes)
            )  # fmt: skip
            yield Sm90Group(f"{dtype}-d{dim}x{dim_v}-{name}", cases)


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_head_dims_and_masks(group):
    group.check()


def edge_groups():
    edges = {
        # 86 heads are dealt in pairs, and the tiles of three behind them.
        "rows-of-no-key": dict(len_q=300, len_kv=90, causal=True, heads=89, heads_kv=1),
        "groups-of-no-row": dict(len_q=66, len_kv=130, heads=70, heads_kv=70),
        "several-tiles-a-block": dict(len_q=66, len_kv=70, causal=True, **MANY),
        # With one stage of Q, the next query tile waits until that of no key has released it.
        "rows-of-no-key-wide": dict(len_q=300, len_kv=90, causal=True, head_dim=136, head_dim_v=8),
        "window-between-tiles": dict(len_q=140, len_kv=600, window=(3, 0)),
        "batch": dict(len_q=80, len_kv=90, batch=6, heads=12, heads_kv=4, layout="bhsd"),
    }  # fmt: skip
    if grid.is_full():  # small, test_tiles_that_are_far_apart has as many
        edges["more-than-32-tiles"] = dict(len_q=70, len_kv=9000, heads=70, heads_kv=2, head_dim=8,
                                           window=(4150, 0))  # fmt: skip
    for name, edge in edges.items():
        yield Sm90Group(name, (AttentionCase(**{**HEADS, **edge}),))


@pytest.mark.parametrize("group", list(edge_groups()), ids=str)
def test_edges(group):
    group.check()


# The tiles of windows, which reach over several tiles of keys and end within one.
WINDOWS = {"128x64x3": (300, 0), "192x64x2": (440, 15)}


@pytest.mark.parametrize("tile", WINDOWS)
def test_windows(tile):
    shape = dict(len_q=770, len_kv=900, heads=15, heads_kv=5, window=WINDOWS[tile])
    dims = sized(small=[128], full=[128, 96, 72])
    cases = tuple(AttentionCase(head_dim=dim, **shape) for dim in dims)
    assert {case.explain()["config"] for case in cases} == {tile}
    Sm90Group(tile, cases).check()


# Options of the small size; scripts/plant_faults.py counts on the scales.
FEW_OPTIONS = {"softcap", "softcap-scale", "alibi", "sinks-f16", "scale-negative", "scale-zero"}


def option_groups():
    for i, (name, options) in enumerate(OPTIONS.items()):
        if name not in FEW_OPTIONS and not grid.is_full():
            continue
        shape = dict(len_q=90, len_kv=110, head_dim=(64, 128)[i % 2], causal=i % 3 == 0)
        yield Sm90Group(name, (AttentionCase(**shape, **HEADS, **options),))


@pytest.mark.parametrize("group", list(option_groups()), ids=str)
def test_options(group):
    group.check()


# A tile of queries is split where the keys are many tiles of keys, for few queries.
CHUNK = dict(len_q=70, heads=2, heads_kv=1)
SPLITS = {
    "d64": dict(head_dim=64, len_kv=2100, causal=True),
    "d128": dict(head_dim=128, len_kv=2100, dtype="f16"),
    "d128-rows-of-192": dict(head_dim=128, len_q=190, len_kv=1400),
    "d192x128": dict(head_dim=192, head_dim_v=128, len_kv=2100, causal=True),
    "d256": dict(head_dim=256, len_kv=1400, causal=True),
    "sinks": dict(head_dim=128, len_kv=2100, sinks="f32", causal=True),
    "code-at-every-logit": dict(head_dim=128, len_kv=2100, scale=-0.2, softcap=3.0, alibi="h"),
    "window": dict(head_dim=128, len_kv=2200, window=(2100, 5)),
    # The last tile's queries see fewer tiles of keys than there are splits.
    "window-past-the-end": dict(head_dim=128, len_q=1290, len_kv=1293, heads=1, window=(0, 1285)),
    "batch-bhsd": dict(head_dim=72, len_kv=2100, batch=2, layout="bhsd"),
    "several-tiles": dict(head_dim=128, len_q=200, len_kv=1400, causal=True),
}
FULL_SPLITS = {
    "splits-of-no-key": dict(len_q=2700, len_kv=2700, heads=1, window=(2650, 0)),
    "many-tiles": dict(len_q=700, len_kv=20000, heads=8, heads_kv=2, head_dim=128, causal=True),
    "more-splits-than-multiprocessors": dict(len_q=100, len_kv=100000, heads=5, heads_kv=5,
                                             head_dim=128),
}  # fmt: skip


def split_groups():
    for name, case in {**SPLITS, **sized(small={}, full=FULL_SPLITS)}.items():
        yield Sm90Group(f"split-{name}", (AttentionCase(**{**CHUNK, **case}),))


@pytest.mark.parametrize("group", list(split_groups()), ids=str)
def test_splits(group):
    assert all(case.explain()["splits"] > 1 for case in group.cases)
    group.check()


STARTS = """
// A key without a value, as a sink, that counts in the LSE too.
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kStartsRows = true;
  __device__ void row_init(kiln::RowSum& sum, const kiln::Position&) const { sum.add(7.0f); }
};
"""


def test_one_split_alone_starts_rows(tmp_path):
    path = tmp_path / "starts.cuh"
    path.write_text(STARTS)
    variant = jit.Variant("starts", file=str(path))
    q, k, v = AttentionCase(**CHUNK, head_dim=128, len_kv=1400).inputs()
    assert kiln.explain("flash_attention", q, k, v, variant=variant())["splits"] > 1
    out, lse = jit.flash_attention(q, k, v, variant=variant(), return_lse=True)
    bare = attention(q, k, v, precision=torch.float64)[1]
    assert (lse - torch.logaddexp(bare, torch.full_like(bare, 7.0))).abs().max() < 1e-3
    sinks = torch.full([CHUNK["heads"]], 7.0, device=DEVICE)
    judge("rows that start", q, k, v, out, bare.float(), sinks=sinks)


def test_a_list_of_variants_with_a_table():
    case = AttentionCase(len_q=66, len_kv=140, causal=True, **MANY)
    table = randn([5, case.heads], torch.float32, 3).t()
    steps = jit.Variant("steps", tensors={"t": "f32[h, *]"}, logits="logit + t(h, (q - kv) / 16)")
    variant = [steps(t=table), jit.Variant("odd", mask="kv % 3 != 1", logits="0.5 * logit")]
    assert kiln.explain("flash_attention", *case.inputs(), variant=variant)["path"] == "sm_90a"

    def logits(s, at):
        place = torch.div(at.q - at.kv, 16, rounding_mode="trunc").clamp(0, 4)[0, 0]
        return 0.5 * (s + table.to(s.dtype)[:, place][None])

    run(variant, case, logits=logits, mask=lambda at: at.kv % 3 != 1)


@pytest.mark.parametrize("head_dim", sized(small=[64], full=[64, 128, 256]))
def test_values_that_no_query_sees_may_be_nan(head_dim):
    """In tiles that are seen: before the first window, and behind a top-left causal mask."""
    shape = sized(small=dict(len_q=66, len_kv=140), full=dict(len_q=100, len_kv=300))
    case = AttentionCase(head_dim=head_dim, **shape, **MANY)
    q, k, v = case.inputs()
    first = case.len_kv - case.len_q - 20
    for x in (k, v):
        x[:, :first] = math.nan
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, window=(20, 0))
    judge("before the window", q, k[:, first:], v[:, first:], out, lse, window=(20, 0))
    q, k, v = case.inputs(1)
    for x in (k, v):
        x[:, case.len_q :] = math.nan
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, causal=True, top_left=True)
    seen = k[:, : case.len_q], v[:, : case.len_q]
    judge("top-left", q, *seen, out, lse, causal=True)


# Courses of the logits along the keys, x from 0 to 1: rows' maxima are compared as integers once
# they are positive, and as floats until then.
COURSES = {
    "negative": lambda x: -1 - 0 * x,
    "rising-below-zero": lambda x: -12 * (1.1 - x),
    "rising-beyond-zero": lambda x: 24 * x - 12,
    "late-positive": lambda x: torch.where(x < 0.8, -4.0, 4.0),
}


@pytest.mark.parametrize("opposite", [False, True], ids=["alike", "every-other-row-opposite"])
@pytest.mark.parametrize("course", COURSES)
def test_maxima_of_either_sign(course, opposite):
    """Weights of float16 overflow where a maximum that has to grow does not."""
    case = AttentionCase(dtype="f16", len_q=66, len_kv=300, **MANY)
    q, k, v = case.inputs()
    q, k = q.abs(), k.abs()
    if opposite:
        q[:, ::2] *= -1
    k *= COURSES[course](torch.linspace(0, 1, case.len_kv, device=DEVICE)).view(1, -1, 1, 1)
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse)
    judge(course, q, k, v, out, lse)


def test_zeros_of_a_negative_scale_raise_maxima():
    """Scores of 0 become -0 then, which no integer that stands for a maximum below it may hide."""
    case = AttentionCase(dtype="f16", len_q=66, len_kv=384, scale=-1.0, **MANY)
    q, k, v = case.inputs()
    q, k = q.abs(), k.abs()
    k[:, 128:] = 0
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, scale=case.scale)
    judge("zeros behind", q, k, v, out, lse, scale=case.scale)


# A mask of blocks of 64 by 64; which of them are shown stands where SHOWN is.
BLOCKS = """
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kMasks = true;
  static __device__ __forceinline__ bool shows(int q, int kv) {
    return SHOWN;
  }
  __device__ __forceinline__ bool keep(const kiln::Position& at) const {
    return shows(at.q, at.kv);
  }
  __device__ __forceinline__ kiln::Tile tile(int q_first, int q_last, int kv_first,
                                             int kv_last) const {
    bool all = true, none = true;
    for (int q = q_first / 64; q <= q_last / 64; ++q) {
      for (int kv = kv_first / 64; kv <= kv_last / 64; ++kv) {
        (shows(q * 64, kv * 64) ? none : all) = false;
      }
    }
    return all ? kiln::Tile::full : none ? kiln::Tile::skip : kiln::Tile::partial;
  }
};
"""


def blocks(name, shown, folder):
    path = folder / f"{name}.cuh"
    path.write_text(BLOCKS.replace("SHOWN", shown))
    return jit.Variant(name, file=str(path))()


@pytest.mark.parametrize("head_dim", sized(small=[64, 128], full=[64, 128, 192, 256]))
def test_tiles_that_some_warpgroups_skip(head_dim, tmp_path):
    """A mask of blocks, other ones for each warpgroup, with holes between."""
    variant = blocks("holes", "(q / 64 + kv / 256) % 3 == 0 || kv < 64", tmp_path)
    shape = sized(small=dict(len_q=200, len_kv=400, heads=34, heads_kv=34),
                  full=dict(len_q=384, len_kv=1300, heads=24, heads_kv=24))  # fmt: skip
    case = AttentionCase(head_dim=head_dim, **shape)

    def shown(at):
        return ((at.q // 64 + at.kv // 256) % 3 == 0) | (at.kv < 64)

    run(variant, case, mask=shown)


# The blocks of 128 keys that the warpgroups of three query tiles see. The walk's second step begins
# at block 32. A warpgroup hands Q back when it knows of no further block of its own.
FAR = ((0, 33), (0, 20), (0, 20, 33), (0, 20, 34), (0,), (0, 20, 33))


@pytest.mark.parametrize("head_dim", sized(small=[136], full=[64, 128, 136]))
def test_tiles_that_are_far_apart(head_dim, tmp_path):
    """With one stage of Q, for which the next query tile waits."""
    sees = " : ".join(
        f"q / 64 % 6 == {group} ? {' || '.join(f'kv / 128 == {block}' for block in seen)}"
        for group, seen in enumerate(FAR)
    )
    variant = blocks("far", f"{sees} : false", tmp_path)
    # 66 blocks of 64 keys lie before the first query. Fewer query tiles would be split.
    case = AttentionCase(head_dim=head_dim, head_dim_v=8, len_q=64 * 5 + 1, len_kv=64 * 71 + 1,
                         heads=67)  # fmt: skip
    q, k, v = case.inputs()
    assert kiln.explain("flash_attention", q, k, v, variant=variant)["splits"] == 1
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, variant=variant)
    any_sees = sorted(set().union(*FAR))
    k, v = (torch.cat([x[:, 128 * i : 128 * i + 128] for i in any_sees], 1) for x in (k, v))

    def shown(at):
        table = torch.tensor([[block in seen for block in any_sees] for seen in FAR], device=DEVICE)
        return table[at.row // 64, at.kv // 128]

    judge("far apart", q, k, v, out, lse, mask=shown)


@pytest.mark.parametrize("by_key", [False, True])
def test_code_that_reads_nothing_at_a_key_has_the_tiles_of_built_in_code(by_key):
    variant = jit.Variant(
        "near", params={"slope": "f32", "first": "i32"}, mask="kv <= q || kv < first",
        tensors={"bias": "f32[h, kv]" if by_key else "f32[h]"},
        logits="logit - slope * abs(q - kv) - 0.01f * at.distance + bias",
    )  # fmt: skip
    case = AttentionCase(head_dim=128, len_q=150, len_kv=1400)
    q, k, v = case.inputs()
    bias = randn([2, 1400] if by_key else [2], torch.float32, 9)
    bound = variant(slope=0.02, first=30, bias=bias)
    config = kiln.explain("flash_attention", q, k, v, variant=bound)["config"]
    assert config == ("128x96x2 split" if by_key else "128x128x2 split")
    added = bias.double().reshape(1, 2, 1, -1)

    def logits(s, at):
        return s - 0.02 * (at.q - at.kv).abs() - 0.01 * (at.q - at.kv) + added

    run(bound, case, logits=logits, mask=lambda at: (at.kv <= at.q) | (at.kv < 30))


def test_repeats_are_bit_identical():
    shape = sized(small=dict(len_q=80, len_kv=90), full=dict(len_q=1000, len_kv=500))
    case = AttentionCase(head_dim=128, causal=True, **shape, **HEADS)
    q, k, v = case.inputs()
    first, first_lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    for _ in range(sized(small=2, full=50)):
        out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
        assert torch.equal(out, first) and torch.equal(lse, first_lse)


def test_broadcast_heads_take_the_portable_path():
    """No tensor map has a stride of 0; explain() says which path a call takes."""
    q = randn([1, 300, 40, 64], torch.bfloat16, 1)
    k = randn([1, 300, 1, 64], torch.bfloat16, 2).expand(1, 300, 40, 64)
    assert kiln.explain("flash_attention", q, k, k)["path"] == "portable"
    out, lse = jit.flash_attention(q, k, k, return_lse=True)
    judge("expanded", q, k, k, out, lse)


def test_q_may_be_the_output():
    case = AttentionCase(len_q=100, len_kv=100, head_dim=128, heads=70, heads_kv=70)
    q, k, v = case.inputs()
    given = q.clone()
    lse = torch.empty(1, 70, 100, device=DEVICE)
    jit.flash_attention(q, k, v, out=q, lse=lse)
    judge("in place", given, k, v, q, lse)
