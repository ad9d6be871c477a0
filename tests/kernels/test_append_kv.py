"""Appending to a paged cache: every dtype, layout, head dim and option."""

import dataclasses
import math

import kiln
import pytest
import torch
from append_case import CACHE_DTYPES, AppendCase, quantized, same_bits
from case_group import CaseGroup
from grid import arch, sized
from kiln import jit
from storage import DEVICE, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

TOKENS = sized(small=7, full=900)
PAGES = sized(small=3, full=80)
FUSED = AppendCase(queries=3, q_weight="bf16", k_weight="bf16", rotary=64, tokens=6)
QUANTIZED = ("e4m3", "e5m2", "int8")


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("layout", ["plain", "rows", "hnd", "layers", "odd"])
def test_layouts(dtype, layout):
    """Free strides of pages, tokens and heads; keys and values in the same rows."""
    case = AppendCase(dtype, layout=layout, tokens=TOKENS, pages=PAGES, page_size=16)
    case.check()
    for more in (dict(dim=128, dim_v=64), dict(heads=1), dict(page_size=1, pages=TOKENS)):
        dataclasses.replace(case, **more).check()
    for cache in QUANTIZED:
        dataclasses.replace(case, cache=cache, scales="scalar").check()


def dim_groups():
    for storage in ("plain", "odd"):
        base = AppendCase(storage=storage, tokens=3, pages=1)
        cases = [
            dataclasses.replace(base, dim=dim, dim_v=dim_v, rotary=rotary, interleaved=interleaved)
            for dim, dim_v in [(2, 2), (6, 10), (64, 64), (72, 72), (80, 80), (96, 96), (128, 128),
                               (192, 128), (256, 256), (512, 512), (40, 256)]
            for rotary, interleaved in [(0, False), (dim, False), (dim, True)]
        ]  # fmt: skip
        cases += [
            dataclasses.replace(base, dim=dim, rotary=rotary, interleaved=interleaved)
            for dim, rotary in [(64, 32), (128, 64), (96, 24), (80, 2), (128, 100)]
            for interleaved in (False, True)
        ]
        yield CaseGroup(storage, tuple(cases))


@pytest.mark.parametrize("group", list(dim_groups()), ids=str)
def test_head_dims_and_what_rotates(group):
    group.check()


@pytest.mark.parametrize("cache", QUANTIZED)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_quantised_caches(dtype, cache):
    for scales in ("", "scalar", "one", "heads", "expanded"):
        case = AppendCase(dtype, cache, scales=scales, heads=3, layout="rows", scale=3.0)
        case.check()
    dataclasses.replace(case, storage="odd", layout="odd").check()
    fused = dataclasses.replace(FUSED, dtype=dtype, cache=cache, scales="heads", q_weight="f32",
                                k_weight="f32")  # fmt: skip
    fused.check()


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("cache", QUANTIZED)
def test_every_number_is_quantised_as_pytorch_does_it_but_saturates(device, name, cache):
    """All of float16 but NaN and subnormals of odd scales, in both ways to compute it."""
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    key = numbers.view(128, 1, 512).to(DEVICE)
    slots = torch.arange(128, device=DEVICE)
    with device.on(name):
        for scale in (1.0, 0.37, 7.0):  # the last has ties that its inverse misses
            caches = [
                torch.zeros(8, 16, 1, 512, dtype=torch.uint8, device=DEVICE).view(
                    CACHE_DTYPES[cache]
                )
                for _ in range(2)
            ]
            given = torch.tensor(scale, device=DEVICE)
            jit.append_kv(key, key, *caches, slots, k_scale=given, v_scale=given)
            expected = quantized(key.float() / given, CACHE_DTYPES[cache])
            for stored in caches:
                same = same_bits(stored.view(128, 1, 512), expected)
                bad = key.view(-1)[~same.view(-1)]
                assert same.all(), f"{name}, {cache} / {scale}: {bad[:8].tolist()} differ"


def option_groups():
    base = FUSED
    yield CaseGroup("all", (base, dataclasses.replace(base, interleaved=True)))
    alone = [
        dict(queries=0, q_weight=""), dict(rotary=0), dict(q_weight="", k_weight=""),
        dict(q_weight=""), dict(k_weight=""), dict(queries=0, q_weight="", k_weight=""),
        dict(rotary=0, q_weight="", k_weight=""), dict(queries=8, heads=1),
    ]  # fmt: skip
    yield CaseGroup("some", tuple(dataclasses.replace(base, **more) for more in alone))
    dtypes = [
        dict(q_weight=weight, k_weight=weight, table=table, dtype=dtype)
        for dtype in ("bf16", "f16")
        for weight, table in [("f32", "f32"), (dtype, dtype), ("bf16", "f32"), ("f16", dtype)]
    ]
    yield CaseGroup("dtypes", tuple(dataclasses.replace(base, **more) for more in dtypes))
    places = [dict(query_out=out) for out in ("query", "", "plain", "odd", "head_slice")]
    places += [dict(storage=kind) for kind in ("guarded", "odd", "offset", "head_slice")]
    places += [dict(storage="guarded", query_out="query", rotary=0, q_weight="", k_weight="")]
    yield CaseGroup("places", tuple(dataclasses.replace(base, **more) for more in places))


@pytest.mark.parametrize("group", list(option_groups()), ids=str)
def test_queries_norms_and_rotations(group):
    group.check()


@pytest.mark.parametrize("positions", ["int32", "int64"])
def test_positions(positions):
    case = dataclasses.replace(FUSED, positions=positions)
    case.check()
    # Every other one of a longer tensor, and some that are in no table.
    key, value, _, slots, words = case.inputs()
    words.pop("q_weight")
    words["positions"] = torch.tensor([3, -5, 36, 37, 2**30, 0], device=DEVICE).to(
        getattr(torch, positions)
    )
    results = []
    for given in (words["positions"], words["positions"].clamp(0, 36)):
        _, caches = case.caches()
        given = given.repeat_interleave(2)[::2]
        jit.append_kv(key, value, *caches, slots, **{**words, "positions": given})
        results.append([cache[slot // 4, slot % 4] for cache in caches for slot in slots.tolist()])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_slots_that_are_skipped():
    for slots in [(3, -1, 0), (-1, -1), (-(2**62), 7, 12, 13, 2**40), (11, 2**32 + 1)]:
        AppendCase(tokens=6, slots=slots).check()
        dataclasses.replace(FUSED, slots=slots, query_out="plain").check()


@pytest.mark.parametrize("stored,dim", [("", 64), ("e4m3", 128), ("int8", 10)])
def test_slots_of_several_tokens(stored, dim):
    """Each element is of one of them, and beside them nothing is written."""
    case = AppendCase(cache=stored, dim=dim, tokens=300, pages=3)
    key, value, _, _, _ = case.inputs()
    _, caches = case.caches()
    kept = [cache.clone() for cache in caches]
    slots = torch.arange(300, device=DEVICE) * 7 % 5 + 2
    jit.append_kv(key, value, *caches, slots)
    for given, cache, before in zip((key, value), caches, kept):
        for slot in range(12):
            found = cache[slot // 4, slot % 4]
            tokens = quantized(given[slots == slot].float(), found.dtype)
            may_be = tokens if len(tokens) else before[slot // 4, slot % 4][None]
            same = same_bits(found[None].expand(may_be.shape), may_be)
            assert same.any(0).all(), f"slot {slot} has other elements"


def test_tokens_beyond_the_slots_are_neither_read_nor_written():
    case = dataclasses.replace(FUSED, slots=(4, 2), tokens=6)
    key, value, query, slots, words = case.inputs()
    for tensor in (key, value, query):
        tensor[2:] = math.nan
    words["positions"][2:] = 2**40
    _, caches = case.caches()
    out = torch.full_like(query, 7.0)
    jit.append_kv(key, value, *caches, slots, query=query, query_out=out, **words)
    assert (out[2:] == 7).all() and not out[:2].isnan().any()
    case.check()


def test_what_is_not_computed_keeps_its_bits():
    """Also those of NaN, and of values beside keys that rotate."""
    bits = torch.tensor([0x7FC1, -1, 0x7F81, -0x8000], dtype=torch.int16, device=DEVICE)
    x = bits.view(torch.bfloat16).repeat(16).view(1, 1, 64)
    slots = torch.tensor([5], device=DEVICE)
    tables = {"positions": slots, "cos": torch.ones(8, 32, device=DEVICE),
              "sin": torch.zeros(8, 32, device=DEVICE)}  # fmt: skip
    for words in ({}, tables):
        _, caches = AppendCase(heads=1).caches()
        jit.append_kv(x, x, *caches, slots, **words)
        assert torch.equal(caches[1][1, 1, 0].view(torch.int16), x.view(-1).view(torch.int16))
        if not words:
            assert torch.equal(caches[0][1, 1, 0].view(torch.int16), x.view(-1).view(torch.int16))


@pytest.mark.parametrize("cache", ["bf16", "e4m3"])
def test_dimensions_of_size_one_have_any_stride(cache):
    case = AppendCase(cache=cache, heads=1, tokens=3)
    key, value, _, slots, _ = case.inputs()
    results = []
    for heads_stride in (64, 7, 1):
        buffers, caches = case.caches()
        size, dim = case.page_size, case.dim
        silly = [c.as_strided(c.shape, (size * dim, dim, heads_stride, 1)) for c in caches]
        given = [x.as_strided(x.shape, (dim, heads_stride, 1)) for x in (key, value)]
        explanation = kiln.explain("append_kv", *given, *silly, slots)
        jit.append_kv(*given, *silly, slots)
        results.append((explanation["key"], [buffer.clone() for buffer in buffers]))
    for key_of, buffers in results[1:]:
        assert key_of == results[0][0]
        assert all(torch.equal(a, b) for a, b in zip(buffers, results[0][1]))


def test_a_token_gives_the_same_bits_in_every_batch():
    case = dataclasses.replace(FUSED, tokens=6, dim=128, rotary=128, query_out="")
    key, value, query, slots, words = case.inputs()
    positions = words.pop("positions")
    _, many = case.caches()
    out = jit.append_kv(key, value, *many, slots, query=query, positions=positions, **words)
    _, single = case.caches()
    for token in range(6):
        one = slice(token, token + 1)
        alone = jit.append_kv(key[one], value[one], *single, slots[one], query=query[one],
                              positions=positions[one], **words)  # fmt: skip
        assert torch.equal(alone, out[one])
    assert all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(many, single))


def test_more_heads_than_the_device_holds_at_once():
    """To copy them, a group of threads has one; to quantise, it walks over several of a token, and
    where an access has few bytes."""
    many = AppendCase(tokens=9000, heads=16, dim=128, pages=563, page_size=16)
    for config, more in [("1 row", {}), ("4 rows", dict(cache="int8")),
                         ("1 row", dict(cache="int8", tokens=100)),
                         ("4 rows", dict(storage="odd", layout="odd"))]:  # fmt: skip
        assert dataclasses.replace(many, **more).explain()["config"] == config
    tokens = sized(small=2117, full=20000)
    case = AppendCase(tokens=tokens, heads=16, dim=128, pages=tokens // 16 + 1, page_size=16)
    key, value, _, slots, _ = case.inputs()
    _, caches = case.caches()
    jit.append_kv(key, value, *caches, slots)
    for cache, x in zip(caches, (key, value)):
        stored = cache.view(-1, 16, 128)[slots].view(torch.int16)
        assert torch.equal(stored, x.view(torch.int16))


@pytest.mark.parametrize("cache", ["bf16", "e4m3"])
def test_walks_over_heads_of_each_kind(cache):
    """Some more than are on their way at a time, the last ones fewer than a walk has."""
    case = dataclasses.replace(FUSED, tokens=40, pages=11, queries=801, heads=7, cache=cache,
                               scales="" if cache == "bf16" else "heads")  # fmt: skip
    assert case.explain()["config"] == "4 rows"
    case.check()


def test_nothing_to_do():
    key = zeros(0, 2, 64)
    _, caches = AppendCase().caches()
    slots = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    assert jit.append_kv(key, key, *caches, slots) is None
    assert jit.append_kv(key, key, *caches, slots, query=key).shape == key.shape
    empty = zeros(0, 16, 2, 64)
    one = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    jit.append_kv(zeros(1, 2, 64), zeros(1, 2, 64), empty, zeros(0, 16, 2, 64), one)


def test_no_shape_compiles_after_prewarming():
    spec = {"op": "append_kv", "head_dim": 64, "query": True, "weight": "bfloat16", "rotary": 64}
    report = kiln.prewarm([spec, {"op": "append_kv", "head_dim": 64}], arch())
    assert report["failed"] == [] and report["total"] == 3
    with kiln.no_compile():
        for tokens, heads, page_size in [(1, 1, 1), (5, 2, 16), (9, 8, 32)]:
            case = AppendCase(tokens=tokens, heads=heads, page_size=page_size, pages=9)
            case.check()
            fused = dataclasses.replace(FUSED, tokens=tokens, heads=heads, page_size=page_size)
            dataclasses.replace(fused, pages=9, query_out="plain", layout="hnd").check()


def zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


def longs(*shape):
    return zeros(*shape, dtype=torch.int64)


def floats(*shape):
    return zeros(*shape, dtype=torch.float32)


def refused(error, text, **given):
    case = dict(key=zeros(4, 2, 64), value=zeros(4, 2, 64), k_cache=zeros(3, 8, 2, 64),
                v_cache=zeros(3, 8, 2, 64), slot_mapping=longs(4))  # fmt: skip
    with pytest.raises(error) as caught:
        jit.append_kv(**{**case, **given})
    assert "append_kv: " in str(caught.value) and text in str(caught.value), caught.value


TABLES = {"positions": longs(4), "cos": floats(9, 32), "sin": floats(9, 32)}


@pytest.mark.parametrize(
    "error,text,given",
    [
        (TypeError, "key must be float16 or bfloat16, got float32", dict(key=floats(4, 2, 64))),
        (ValueError, "key must have 3 dimensions [tokens, heads_kv, head_dim], got [4, 64]",
         dict(key=zeros(4, 64))),
        (ValueError, "key must have an even head dim up to 512, got [4, 2, 63]",
         dict(key=zeros(4, 2, 63))),
        (ValueError, "value must have an even head dim up to 512, got [4, 2, 514]",
         dict(value=zeros(4, 2, 514))),
        (ValueError, "key must be contiguous in its last dimension", dict(key=zeros(4, 64, 2).mT)),
        (TypeError, "value must be bfloat16 like key", dict(value=floats(4, 2, 64))),
        (ValueError, "value must have shape [4, 2, 64], got [4, 3, 64]",
         dict(value=zeros(4, 3, 64))),
        (TypeError, "slot_mapping must be int64", dict(slot_mapping=zeros(4, dtype=torch.int32))),
        (ValueError, "slot_mapping must have at most as many tokens as key, which has 4, got [5]",
         dict(slot_mapping=longs(5))),
        (ValueError, "k_cache must have 4 dimensions", dict(k_cache=zeros(8, 2, 64))),
        (TypeError, "k_cache must have key's dtype, bfloat16, or be float8_e4m3fn",
         dict(k_cache=floats(3, 8, 2, 64))),
        (TypeError, "v_cache must be bfloat16 like k_cache",
         dict(v_cache=zeros(3, 8, 2, 64, dtype=torch.int8))),
        (ValueError, "k_cache must have shape [3, 8, 2, 64], got [3, 8, 3, 64]",
         dict(k_cache=zeros(3, 8, 3, 64))),
        (ValueError, "v_cache must have shape [3, 8, 2, 64], got [2, 8, 2, 64]",
         dict(v_cache=zeros(2, 8, 2, 64))),
        (ValueError, "k_scale is of quantised caches, and this one is bfloat16",
         dict(k_scale=floats(1))),
        (ValueError, "query_out is of the query: give query too", dict(query_out=zeros(4, 8, 64))),
        (ValueError, "q_weight is of the query: give query too", dict(q_weight=zeros(64))),
        (TypeError, "query must be bfloat16 like key", dict(query=floats(4, 8, 64))),
        (ValueError, "query must have shape [4, 8, 64], got [5, 8, 64]",
         dict(query=zeros(5, 8, 64))),
        (ValueError, "query_out must have shape [4, 8, 64], got [4, 8, 32]",
         dict(query=zeros(4, 8, 64), query_out=zeros(4, 8, 32))),
        (ValueError, "k_weight must have shape [64], got [2]", dict(k_weight=zeros(2))),
        (TypeError, "k_weight must be float16, bfloat16 or float32, got int64",
         dict(k_weight=longs(64))),
        (TypeError, "k_weight must be bfloat16 like q_weight",
         dict(query=zeros(4, 8, 64), q_weight=zeros(64), k_weight=floats(64))),
        (ValueError, "positions goes with cos and sin: give all three, or none",
         dict(cos=floats(9, 32))),
        (TypeError, "positions must be int32 or int64, got float32",
         {**TABLES, "positions": floats(4)}),
        (ValueError, "positions must have at least as many tokens as slot_mapping, which has 4",
         {**TABLES, "positions": longs(3)}),
        (TypeError, "cos must be float32 or key's dtype, bfloat16, got float16",
         {**TABLES, "cos": zeros(9, 32, dtype=torch.float16)}),
        (TypeError, "sin must be float32 like cos", {**TABLES, "sin": zeros(9, 32)}),
        (ValueError, "cos must have at least one position, and angles for at most a head dim of 64",
         {**TABLES, "cos": floats(9, 33)}),
        (ValueError, "sin must have shape [9, 32], got [8, 32]", {**TABLES, "sin": floats(8, 32)}),
        (ValueError, "eps must be a finite number, got nan", dict(eps=math.nan)),
        (ValueError, "eps must not be negative, got -1", dict(eps=-1.0)),
    ],
)  # fmt: skip
def test_what_is_refused(error, text, given):
    refused(error, text, **given)


def test_scales_that_are_refused():
    caches = {name: zeros(3, 8, 2, 64, dtype=torch.int8) for name in ("k_cache", "v_cache")}
    refused(ValueError, "k_scale must have shape [] or [1] (one for all heads) or [2] (one for",
            k_scale=floats(3), **caches)  # fmt: skip
    refused(TypeError, "v_scale must be float32", v_scale=zeros(1), **caches)


def test_overlaps_that_are_refused():
    cache = zeros(3, 8, 2, 64)
    refused(ValueError, "k_cache shares memory with v_cache", k_cache=cache, v_cache=cache)
    query = zeros(5, 2, 64)
    refused(ValueError, "query_out shares memory with query", query=query[:4], query_out=query[1:])
    refused(ValueError, "query_out shares memory with key", key=query[:4], query_out=query[:4],
            query=zeros(4, 2, 64))  # fmt: skip


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_other_architectures(device, name):
    with device.on(name):
        FUSED.check()
        dataclasses.replace(FUSED, interleaved=True, cache="e5m2", layout="rows").check()


@pytest.mark.cuda
@pytest.mark.parametrize("cache", ["bf16", "e4m3"])
def test_offsets_beyond_32_bits(cache):
    dtype = CACHE_DTYPES[cache]
    pages = 2**31 // (16 * 8 * 128) + 2
    caches = [torch.zeros(pages, 16, 8, 128, dtype=dtype, device=DEVICE) for _ in range(2)]
    key = randn([3, 8, 128], torch.bfloat16, 1)
    slots = torch.tensor([pages * 16 - 1, 0, pages * 16], device=DEVICE)
    jit.append_kv(key, key, *caches, slots)
    for stored in caches:
        assert same_bits(stored[-1, -1], quantized(key[0].float(), dtype)).all()
        assert same_bits(stored[0, 0], quantized(key[1].float(), dtype)).all()
        assert (stored[1:-1, 0].float() == 0).all()
