"""kiln.integrations.sglang without SGLang: its part of a step on the emulated device, and what it
does where SGLang is missing. test_sglang_backend.py drives it with SGLang's own classes."""

import importlib.metadata
import subprocess
import sys

import engine_batch
import kiln
import pytest
import torch
from kiln.integrations import _sglang_attention as plain
from kiln.integrations import sglang as bridge
from message_page import check

HEADS, HEADS_KV, HEAD_DIM, CONTEXT = 4, 2, 64, 96

WITHOUT = (
    "import sys; sys.modules['sglang'] = None; from kiln.integrations import sglang as bridge; "
)


@pytest.fixture(autouse=True)
def emulated():
    with torch.no_grad(), kiln.device("emulator:sm_80", checks=False):
        yield


class Cache:
    """A pool of slots, and a table of requests' slots whose rest is noise."""

    def __init__(self, lengths, keys, values, page_size):
        pages = torch.randperm(200)
        self.table = torch.randint(-1, 200 * page_size, (9, CONTEXT), dtype=torch.int32)
        self.rows = torch.randperm(9)[: len(lengths)]
        size = (200 * page_size, HEADS_KV, HEAD_DIM)
        self.keys, self.values = (torch.full(size, float("nan")).bfloat16() for _ in range(2))
        free = (page_size * pages[:, None] + torch.arange(page_size)).flatten()
        taken = 0
        for row, length, k, v in zip(self.rows, lengths, keys, values):
            slots = free[taken : taken + length]
            taken += -(-length // page_size) * page_size
            self.table[row, :length] = slots.to(torch.int32)
            self.keys[slots], self.values[slots] = k, v
        self.page_size = page_size

    def pages(self, **options):
        return plain.pages_of(self.table, self.rows, self.page_size, CONTEXT, **options)

    def caches(self):
        return tuple(x.unflatten(0, (-1, self.page_size)) for x in (self.keys, self.values))


def layer(**options):
    calls = {"window": (-1, -1), "scale": HEAD_DIM**-0.5, **options.pop("options", {})}
    return plain.Layer(HEADS, HEADS_KV, HEAD_DIM, HEAD_DIM, options=calls, **options)


def close(found, expected, seed):
    assert found.isfinite().all(), f"seed {seed}"
    worst = (found.float() - expected).abs().max().item()
    assert worst < 0.03, f"off by {worst}, seed {seed}"


@pytest.mark.parametrize("page_size", [1, 8])
def test_prefill_beside_chunks_and_decodes(page_size):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    cache = Cache(batch.lengths, batch.keys, batch.values, page_size)
    step = plain.Step(
        plain.Keys(batch.seq_lens, cache.pages()), starts=batch.starts,
        max_queries=max(batch.new), tokens=batch.count,
    )  # fmt: skip
    out = torch.full_like(batch.query, 7)
    capped = layer(options={"softcap": 3.0})
    plain.attend(capped, step, batch.query, None, None, cache.caches(), out)
    close(out[: batch.count], engine_batch.attention(batch, softcap=3.0), batch.seed)
    assert (out[batch.count :] == 0).all()


def test_an_encoder_reads_no_cache():
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    keys, values = (batch.packed(x, first=False) for x in (batch.keys, batch.values))
    step = plain.Step(plain.Keys(batch.seq_lens, batch.starts[None]), starts=batch.starts,
                      max_queries=max(batch.new), tokens=batch.count)  # fmt: skip
    out = torch.empty_like(batch.query)
    plain.attend(layer(causal=False), step, batch.query, keys, values, None, out)
    batch.keys, batch.values = ([x[n:] for x, n in zip(tensors, batch.before)]
                                for tensors in (batch.keys, batch.values))  # fmt: skip
    close(out[: batch.count], engine_batch.attention(batch, causal=False), batch.seed)


def test_a_tree_beside_cross_attention():
    """A tree is of the step's own keys; those of an encoder are all seen."""
    torch.manual_seed(3)
    drafts, lengths = 5, [9, 30]
    seen = torch.tensor([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0],
                         [1, 0, 1, 0, 1]], dtype=torch.bool)  # fmt: skip
    keys, values = ([torch.randn(n, HEADS_KV, HEAD_DIM).bfloat16() for n in lengths]
                    for _ in range(2))  # fmt: skip
    cache = Cache(lengths, keys, values, 1)
    words = plain.tree_words(seen.expand(2, -1, -1))
    places = plain.Keys(torch.tensor(lengths, dtype=torch.int32), cache.pages())
    step = plain.Step(places, queries=drafts, tokens=10, words=words, encoder=places)
    query = torch.randn(2 * drafts, HEADS, HEAD_DIM).bfloat16()
    for is_cross in (False, True):
        out = torch.empty_like(query)
        cross = layer(causal=not is_cross, is_cross=is_cross)
        plain.attend(cross, step, query, None, None, cache.caches(), out)
        for row, length in enumerate(lengths):
            for draft in range(drafts):
                sees = torch.ones(length, dtype=torch.bool)
                if not is_cross:
                    sees[length - drafts :] = seen[draft]
                at = row * drafts + draft
                one = (x[row][sees].float() for x in (keys, values))
                expected = engine_batch._one(query[at][None].float(), *one, False)
                close(out[at], expected[0], 3)


def test_drafts_of_a_mask_of_all_keys():
    lengths, drafts = torch.tensor([3, 0, 7]), 4
    trees = torch.rand(3, drafts, drafts) < 0.5
    rows = [torch.cat([torch.ones(drafts, n, dtype=torch.bool), tree], 1)
            for n, tree in zip(lengths.tolist(), trees)]  # fmt: skip
    mask = torch.cat([row.flatten() for row in rows] + [torch.ones(99, dtype=torch.bool)])
    assert torch.equal(plain.drafts_of_full_mask(mask, lengths, drafts), trees)


def test_words_hold_64_drafts():
    words = plain.tree_words(torch.ones(1, 2, 64, dtype=torch.bool).tril(62))
    assert words.tolist() == [[2**63 - 1, -1]]


def test_tokens_of_a_text_follow_those_of_its_encoder():
    table = torch.arange(40, dtype=torch.int32).view(2, 20)
    pages = plain.pages_of(table, torch.tensor([1, 0]), 1, 6, offsets=torch.tensor([3, 17]))
    assert pages.tolist() == [[23, 24, 25, 26, 27, 28], [17, 18, 19, 19, 19, 19]]


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_the_bridge_imports_no_framework():
    code = "import sys, kiln.integrations.sglang; print({'torch', 'sglang'} & set(sys.modules))"
    assert run_python(code).stdout == "set()\n"


def test_without_sglang_the_plugin_warns_and_register_raises():
    run = run_python(WITHOUT + "bridge.plugin()")
    assert run.returncode == 0 and "Kiln is no attention backend of this SGLang" in run.stderr
    run = run_python(WITHOUT + "bridge.register()")
    check(ImportError(run.stderr), ImportError, "SGLang's attention backends cannot be imported")


def test_the_package_names_the_entry_point():
    (entry,) = (
        found
        for found in importlib.metadata.distribution("kiln").entry_points
        if found.group == "sglang.srt.plugins"
    )
    assert entry.name == "kiln" and entry.load() is bridge.plugin
