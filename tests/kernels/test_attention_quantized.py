"""Attention over quantised KV caches, against the textbook over what their bytes mean."""

import dataclasses
import math

import pytest
import torch
from case_group import CaseGroup
from grid import sized
from kiln import jit
from storage import DEVICE, randn
from varlen_case import QUANTIZED, VarlenCase, check_beside_larger_queries, integers, movable

pytestmark = pytest.mark.usefixtures("compiled", "device")

LONG = sized(small=700, full=4099)
SEQUENCES = {
    "decode": dict(lens_q=(1, 1, 1, 1), lens_k=(LONG, 3, 0, 129), heads=8),
    "alone": dict(lens_q=(2,), lens_k=(LONG,), heads=14),
    "rows-32": dict(lens_q=(4, 3, 0), lens_k=(LONG, 40, 7), heads=16),
    "rows-64": dict(lens_q=(5, 5), lens_k=(300, LONG), heads=14),
    "mixed": dict(lens_q=(1, 75, 0, 6, 1), lens_k=(LONG, 75, 9, 4, 33), heads=4),
}
MASKS = {"causal": {}, "full": {"causal": False}, "window": {"window": (40, 3)}}
SCALES = ["one", "heads", "sequences", "expanded", ""]
KEYS = ["packed", "paged", "cache", "paged by offsets"]
DIMS = [(64, 64), (128, 128), (80, 80), (256, 256), (72, 72), (192, 128), (16, 48)]


def shape_groups():
    """Every head dim with each kind of sequences; all else takes turns."""
    turn = 0
    for dim, dim_v in DIMS:
        for name, sequences in SEQUENCES.items():
            turn += 1
            case = VarlenCase(
                dtype=("bf16", "f16")[turn % 2], head_dim=dim, head_dim_v=dim_v,
                keys=KEYS[(turn + turn // 4) % 4], page=(16, 1, 7, 64)[turn % 4],
                stored=list(QUANTIZED)[(turn + turn // 3) % 3], scales=SCALES[turn // 2 % 5],
                loose=turn % 3, **sequences, **list(MASKS.values())[turn % 3],
            )  # fmt: skip
            yield CaseGroup(f"{name}-d{dim}x{dim_v}", (case,))


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("stored", QUANTIZED)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("scales", SCALES)
def test_scales(stored, dtype, scales):
    VarlenCase(dtype=dtype, stored=stored, scales=scales, **SEQUENCES["decode"]).check()


@pytest.mark.parametrize("stored", QUANTIZED)
@pytest.mark.parametrize("sequences", ["decode", "mixed"])
def test_scales_of_heads_that_differ_a_hundredfold(stored, sequences):
    case = VarlenCase(stored=stored, scales="far heads", **SEQUENCES[sequences])
    dataclasses.replace(case, heads=8, heads_kv=4).check()


@pytest.mark.parametrize("cache", ["nhd", "hnd", "interleaved", "pool", "offset"])
@pytest.mark.parametrize("keys,page", [("cache", 0), ("paged", 16), ("paged", 1)])
def test_caches(cache, keys, page):
    """Whatever the strides of pages, tokens and heads."""
    case = VarlenCase(cache=cache, keys=keys, page=page or 16, stored="e4m3", scales="heads")
    dataclasses.replace(case, **SEQUENCES["decode"]).check()


@pytest.mark.parametrize("keys", ["cache", "paged"])
def test_the_last_chunk_of_a_row_is_half_full(keys):
    """Behind it lies the next head, or nothing."""
    case = VarlenCase(cache="padded", keys=keys, head_dim=72, head_dim_v=40, stored="e4m3")
    dataclasses.replace(case, **SEQUENCES["decode"]).check()
    dataclasses.replace(case, **SEQUENCES["mixed"]).check()


@pytest.mark.parametrize(
    "options",
    [{"softcap": 5.0}, {"alibi": "bh"}, {"sinks": "f32"}, {"scale": -0.2}, {"scale": 0.0},
     {"scale": -0.2, "softcap": 3.0, "alibi": "h"}],
    ids=str,
)  # fmt: skip
def test_options(options):
    case = VarlenCase(stored="e4m3", scales="sequences", **options)
    dataclasses.replace(case, **SEQUENCES["decode"]).check()
    dataclasses.replace(case, **SEQUENCES["mixed"], keys="packed").check()


@pytest.mark.parametrize(
    "stored,keys,dtype,head_dim,head_dim_v",
    [("e4m3", "paged", "bf16", 64, 64), ("e5m2", "cache", "bf16", 128, 128),
     ("int8", "packed", "f16", 80, 48), ("e4m3", "cache", "f16", 64, 128),
     ("int8", "paged", "bf16", 96, 64), ("e5m2", "packed", "bf16", 64, 64),
     ("e4m3", "paged", "bf16", 256, 256), ("int8", "cache", "f16", 192, 128),
     ("e5m2", "packed", "bf16", 160, 144), ("e4m3", "cache", "f16", 64, 208)],
)  # fmt: skip
def test_prefill(stored, keys, dtype, head_dim, head_dim_v):
    """On sm_90a a warpgroup widens the bytes, and others multiply them as f16, of more than 128
    columns of values in two products."""
    for page, window in ((7, (-1, -1)), (64, (100, 0))):
        VarlenCase(
            lens_q=(140, 0, 70), lens_k=(400, 5, 70), dtype=dtype, stored=stored, keys=keys,
            head_dim=head_dim, head_dim_v=head_dim_v, page=page, window=window, scales="sequences",
        ).check()  # fmt: skip


def test_without_splits_the_size_of_other_queries_does_not_matter():
    """Queries of the next sequence lie in the same tile."""
    check_beside_larger_queries(stored="e4m3")


@pytest.mark.parametrize("keys", ["cache", "paged"])
@pytest.mark.parametrize("len_q", [1, 33])
def test_with_kvcache(keys, len_q):
    lengths = dict(lens_q=(len_q,) * 3, lens_k=(300, 5, 64))
    case = VarlenCase(op="kvcache", keys=keys, page=7, head_dim=128, stored="e4m3", **lengths)
    dataclasses.replace(case, scales="heads").check()


@pytest.mark.parametrize("stored", QUANTIZED)
@pytest.mark.parametrize("peak", ["edges", "diagonal"])
def test_peaks(stored, peak):
    """One key dominates each row, at every edge of a tile and of a page."""
    VarlenCase(
        lens_q=(3,) * 4, lens_k=tuple(517 + 3 * i for i in range(4)), heads=8, heads_kv=2,
        peak=peak, scale=1.0, causal=peak == "diagonal", page=7, stored=stored,
    ).check()  # fmt: skip


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("stored", QUANTIZED)
def test_every_byte_is_exact(stored, dtype):
    """One key has all weight, so that an output is a byte of its value."""
    numbers = torch.arange(256, dtype=torch.uint8).view(QUANTIZED[stored]).float()
    numbers = torch.where(numbers.isfinite(), numbers, 0.0)
    v = numbers.view(4, 64).to(QUANTIZED[stored]).to(DEVICE)[:, None, None]
    k = torch.ones_like(v)
    q = randn([4, 1, 1, 64], getattr(torch, {"bf16": "bfloat16", "f16": "float16"}[dtype]), 1)
    used = integers([1, 1, 1, 1])
    out = jit.flash_attention_with_kvcache(q, k, v, cache_seqlens=used)
    assert torch.equal(out[:, 0, 0].float(), v[:, 0, 0].float())
    # As keys: a query of a single 1 makes a byte the logit.
    chosen = torch.zeros([4, 64, 1, 64], dtype=q.dtype, device=DEVICE)
    chosen[:, torch.arange(64), :, torch.arange(64)] = 1.0
    _, lse = jit.flash_attention_with_kvcache(
        chosen, v, v, cache_seqlens=used, scale=1.0, return_lse=True
    )
    torch.testing.assert_close(lse[:, 0], v[:, 0, 0].float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sequences", ["decode", "mixed"])
@pytest.mark.parametrize("magnitude", [2.0**-60, 2.0**-20, 2.0**30, 2.0**100])
def test_queries_of_any_magnitude(magnitude, sequences):
    """They are computed with in float16, in which such a bfloat16 has no place. Rows do not share
    what makes them fit."""
    case = VarlenCase(stored="e4m3", scale=0.125, **SEQUENCES[sequences])
    given = case.inputs()
    plain, scaled = case.call(given), case.call(given)
    plain.run()
    scaled.q[:, 1::2] *= magnitude
    scaled.keywords["q_scale"] = torch.tensor(1 / magnitude, device=DEVICE)
    scaled.run()
    near = torch.testing.assert_close
    near(scaled.out.view[:, 1::2], plain.out.view[:, 1::2], equal_nan=True)
    scaled.keywords["q_scale"] = torch.tensor(1.0, device=DEVICE)
    scaled.run()
    near(scaled.out.view[:, ::2], plain.out.view[:, ::2], equal_nan=True)


def test_what_lies_before_a_window_is_not_read():
    case = VarlenCase(lens_q=(1, 1), lens_k=(500, 90), window=(31, 0), stored="e4m3")
    given = case.inputs()
    call = case.call(given)
    for b, length in enumerate((500, 90)):
        unused = (length - 1 - 31) // 16
        table = call.keywords["block_table"]
        for page in table[b, :unused].tolist():
            movable(call.k)[page], movable(call.v)[page] = 0xFF, 0xFF
        table[b, :unused] = -77777777
    call.run()
    call.judge(given)


@pytest.mark.parametrize("stored", ["e4m3", "e5m2"])
def test_nan_of_a_used_key_is_seen(stored):
    """From sm_89 on; before, a NaN of e4m3 is read as 480."""
    case = VarlenCase(lens_q=(1, 1), lens_k=(40, 40), stored=stored)
    call = case.call(case.inputs())
    table = call.keywords["block_table"]
    movable(call.v)[table[1, 1].item(), 3] = 0x7F
    call.run()
    assert call.out.view[0].isfinite().all()
    assert call.out.view[1].isnan().all()


@pytest.mark.parametrize("stored", QUANTIZED)
@pytest.mark.parametrize("options", [{}, {"softcap": 5.0}], ids=str)
@pytest.mark.parametrize("name", ["q_scale", "k_scale"])
def test_nan_of_a_scale_is_seen(name, options, stored):
    """By a decoded row, whose keys are split, and by a prefilled tile."""
    case = VarlenCase(lens_q=(1, 75), lens_k=(LONG, 90), stored=stored, **options)
    call = case.call(case.inputs())
    call.keywords[name] = torch.tensor(math.nan, device=DEVICE)
    call.run()
    assert call.out.view.isnan().all()


@pytest.mark.parametrize("keys", ["packed", "paged"])
def test_without_splits_a_sequence_does_not_depend_on_others(keys):
    case = VarlenCase(
        lens_q=(1, 30, 1), lens_k=(333, 400, 900), heads=8, num_splits=1, keys=keys,
        stored="e4m3", scales="heads",
    )  # fmt: skip
    given = case.inputs()
    together = case.call(given)
    together.run()
    for b in range(case.batch):
        alone = dataclasses.replace(
            case, lens_q=case.lens_q[b : b + 1], lens_k=case.lens_k[b : b + 1], loose=900
        ).call(given[b : b + 1])
        alone.run()
        expected = together.queries(together.out.view, b)
        assert torch.equal(alone.queries(alone.out.view, 0), expected)
        assert torch.equal(alone.lse_of(0), together.lse_of(b))


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a", "sm_120"])
@pytest.mark.parametrize("stored", QUANTIZED)
def test_other_architectures(device, arch, stored):
    """Without instructions that convert, on sm_80."""
    with device.on(arch):
        VarlenCase(head_dim=128, stored=stored, scales="heads", **SEQUENCES["mixed"]).check()


def test_a_row_without_keys_is_zero_whatever_the_scales():
    case = VarlenCase(lens_q=(1, 2), lens_k=(0, 1), stored="int8", scales="heads")
    call = case.check()
    assert torch.equal(call.queries(call.out.view, 0), torch.zeros_like(call.out.view[:1]))
    assert (call.lse_of(0) == -math.inf).all()
