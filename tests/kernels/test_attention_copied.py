"""Prefill over a cache whose keys a launch ahead copies: a quantised one, or one of small pages.

Calls are large by their bounds of the lengths, as these decide, and small by the lengths.
"""

import dataclasses
from types import SimpleNamespace

import kiln
import pytest
import torch
from grid import arch
from kiln import jit, variants
from plan_case import check_planned
from storage import DEVICE, randn
from varlen_case import VarlenCase, integers

pytestmark = pytest.mark.usefixtures("device")

BOUND = 30000
LONG = VarlenCase(
    lens_q=(300, 170), lens_k=(430, 210), heads=12, heads_kv=1, loose=BOUND, stored="e4m3"
)
OF_PAGES = VarlenCase(
    lens_q=(260, 140), lens_k=(430, 210), heads=64, heads_kv=1, loose=BOUND, page=1
)
OF_BOXES = dataclasses.replace(OF_PAGES, lens_q=(340, 180), page=8)
STORAGES = {
    "pages": {},
    "pages-of-1": {"page": 1, "cache": "hnd"},
    "interleaved": {"page": 24, "cache": "interleaved"},
    "packed": {"keys": "packed"},
    "cache": {"keys": "cache", "cache": "pool"},
    "lists": {"keys": "lists", "page": 8},
    "by-offsets": {"keys": "cache by offsets"},
    "padded-cache": {"op": "kvcache", "keys": "cache", "lens_q": (260, 260), "lens_k": (330, 270),
                     "leftpad": (70, 3), "entries": "shuffled"},
}  # fmt: skip
OPTIONS = {
    "e5m2-f16": {"stored": "e5m2", "dtype": "f16", "scales": "heads"},
    "int8": {"stored": "int8", "scales": "both", "heads": 24, "heads_kv": 2},
    "d128": {"head_dim": 128, "scales": "one"},
    "d48x16": {"head_dim": 48, "head_dim_v": 16},
    "d192x128": {"head_dim": 192, "head_dim_v": 128, "scales": "both"},
    "d256": {"head_dim": 256, "scales": "both", "lens_q": (300,), "lens_k": (430,)},
    "all-logits": {"softcap": 3.0, "alibi": "bh", "sinks": "bf16", "scales": "heads"},
    "flags": {"causal": (True, False)},
    "joined": {
        "lens_q": (300,),
        "lens_k": (1500,),
        "scales": "heads",
        "head_dim": 128,
        "softcap": 3.0,
    },
    "negative-scale": {"scale": -0.2, "scales": "expanded"},
}
PAGES = {
    "pages-of-1": {},
    "pages-of-6": {"page": 6, "cache": "hnd", "heads": 128, "heads_kv": 2},
    "interleaved": {"page": 4, "cache": "interleaved"},
    "lists": {"keys": "lists", "page": 2},
    "f16": {"dtype": "f16", "following": 40},
    "d256": {"head_dim": 256, "lens_q": (200,), "lens_k": (430,)},
    "d72x128": {"head_dim": 72, "head_dim_v": 128},
    "all-logits": {"softcap": 3.0, "alibi": "bh", "sinks": "bf16"},
    "flags": {"causal": (True, False)},
}  # fmt: skip


def launches(case):
    return [one["spec"]["op"] for one in case.explain()["launches"]]


def check(case=LONG, **changes):
    case = dataclasses.replace(case, **changes)
    assert launches(case)[0] == "copy_keys"
    case.check()


@pytest.mark.parametrize("name", STORAGES)
def test_storages(name):
    check(**STORAGES[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    check(**OPTIONS[name])


@pytest.mark.parametrize("name", PAGES)
def test_pages(name):
    check(OF_PAGES, **PAGES[name])


@pytest.mark.parametrize("page", [8, 24])
def test_boxes_of_8_rows(page):
    check(OF_BOXES, page=page)


@pytest.mark.cuda
@pytest.mark.parametrize("changes", [{"window": (127, 0)}, {"window": (999, 0), "stored": ""}])
def test_keys_before_a_window_are_not_read(changes):
    """The workspace holds what was there before: NaN, as far as nothing is copied."""
    case = dataclasses.replace(
        LONG, lens_q=(4000,), lens_k=(9000,), heads=32, heads_kv=4, loose=0, page=1, **changes
    )
    explained = case.explain()
    assert launches(case)[0] == "copy_keys"
    given = case.inputs()
    call = case.call(given)
    unseen = 9000 - 4000 - case.window[0] - 3 * 128
    call.keywords["block_table"][0, :unseen] = -77777777
    memory = torch.full(
        [explained["workspace_bytes"] // 2], 0x7FFF, dtype=torch.int16, device=DEVICE
    )
    del memory
    call.run()
    call.judge(given)


@pytest.mark.parametrize("of", [LONG, OF_PAGES], ids=["bytes", "pages"])
def test_sequences_of_few_queries_are_decoded_beside(of):
    """Their keys are read from the cache by the launch that decodes."""
    lengths = dict(lens_q=(300, 1, 250, 1), lens_k=(430, 200, 250, 70))
    case = dataclasses.replace(of, **lengths, heads=16 if of is LONG else 96, heads_kv=1)
    assert launches(case) == ["copy_keys", "flash_attention", "flash_attention"]
    case.check()


@pytest.mark.parametrize(
    "of, lens_q", [(LONG, (300, 170)), (LONG, (700,)), (OF_PAGES, (260, 140))],
    ids=["bytes", "bytes-alone", "pages"],
)  # fmt: skip
def test_plans(of, lens_q):
    case = dataclasses.replace(of, lens_q=lens_q, lens_k=tuple(n + 200 for n in lens_q))
    assert launches(case)[0] == "copy_keys"
    check_planned(case)


@pytest.mark.parametrize(
    "changes", [{"num_splits": 1}, {"loose": 100}, {"heads": 1}, {"head_dim": 72}, {"stored": ""}]
)
def test_calls_that_widen_bytes_in_their_kernel(changes):
    explained = dataclasses.replace(LONG, **changes).explain()
    assert "copy_keys" not in str(explained), explained


@pytest.mark.parametrize(
    "changes",
    [{"num_splits": 1}, {"loose": 100}, {"heads": 30}, {"page": 16}, {"page": 8, "head_dim": 256},
     {"keys": "packed"}, {"variant": SimpleNamespace(bound=lambda: variants.chunked(64))}],
)  # fmt: skip
def test_calls_that_read_pages_in_their_kernel(changes):
    explained = dataclasses.replace(OF_PAGES, **changes).explain()
    assert "copy_keys" not in str(explained), explained


def test_the_workspace_is_told():
    """[batch, heads_kv, bound, head_dim] of keys and of values, of two bytes."""
    of_all = LONG.explain()["workspace_bytes"]
    bytes_of_keys = len(LONG.lens_k) * (max(LONG.lens_k) + BOUND) * LONG.head_dim * 2
    assert 2 * bytes_of_keys <= of_all < 4 * bytes_of_keys
    assert dataclasses.replace(LONG, head_dim_v=32).explain()["workspace_bytes"] < of_all


def test_calls_whose_keys_would_take_too_much_memory():
    assert launches(dataclasses.replace(LONG, loose=900_000))[0] == "copy_keys"
    explained = dataclasses.replace(LONG, loose=1_200_000).explain()
    assert "copy_keys" not in str(explained)


@pytest.mark.parametrize("case", [LONG, OF_PAGES], ids=["bytes", "pages"])
def test_prewarming_knows_the_kernels(case):
    spec = dict(op="flash_attention", dtype="bfloat16", head_dim=64, mask="causal", storage="paged",
                cache_dtype="float8_e4m3fn" if case.stored else None)  # fmt: skip
    known = [kernel["spec"] for kernel in kiln.prewarm(spec, arch(), check=True)["kernels"]]
    for launch in case.explain()["launches"]:
        assert launch["spec"] in known


def test_new_keys_are_copied_when_they_are_in_the_cache():
    old, new = 170, 260
    q = randn([1, new, 64, 64], torch.bfloat16, 1)
    k, v = randn([2, 1, new, 1, 64], torch.bfloat16, 2)
    rows = randn([2, old + new, 1, 1, 64], torch.bfloat16, 3)
    table = torch.full([1, BOUND], -77777777, dtype=torch.int32, device=DEVICE)
    table[0, : old + new] = torch.randperm(old + new, device=DEVICE)

    def attend(caches, length, **fresh):
        call = dict(cache_seqlens=integers([length]), block_table=table, causal=True, **fresh)
        explained = kiln.explain("flash_attention_with_kvcache", q, *caches, **call)
        names = [one["spec"]["op"] for one in explained["launches"]]
        return jit.flash_attention_with_kvcache(q, *caches, **call), names

    out, names = attend(rows.clone(), old, k_new=k, v_new=v)
    assert names == ["append_kv", "copy_keys", "flash_attention"]
    appended = rows.clone()
    appended[:, table[0, old : old + new].long(), 0] = torch.stack([k[0], v[0]])
    expected, names = attend(appended, old + new)
    assert names == ["copy_keys", "flash_attention"] and torch.equal(out, expected)


def test_nan_of_a_used_key_is_seen():
    case = dataclasses.replace(LONG, keys="cache", causal=False)
    given = case.inputs()
    call = case.call(given)
    call.v.view(torch.uint8)[1, 100, 0, 3] = 0x7F
    call.run()
    assert call.queries(call.out.view, 0).isfinite().all()
    assert call.queries(call.out.view, 1)[..., 3].isnan().all()
