"""Arguments of attention with lengths that name other places of keys, or sequences: entries of a
cache, padding on the left, lists of pages, causal flags."""

import dataclasses
import functools
import math

import pytest
import torch
from attention_case import judge
from grid import sized
from kiln import jit
from storage import DEVICE, randn
from varlen_case import GARBAGE, VarlenCase, integers

pytestmark = pytest.mark.usefixtures("compiled", "device")

LONG = sized(small=500, full=4099)
LENGTHS = dict(lens_q=(1,) * 5, lens_k=(LONG, 3, 0, 129, 64), heads=8)


def kvcache(**changes):
    return VarlenCase(op="kvcache", **{**LENGTHS, **changes})


@pytest.mark.parametrize("keys,page", [("cache", 0), ("paged", 7), ("lists", 16), ("lists", 1)])
@pytest.mark.parametrize("dim", [64, 128, 72])
def test_entries_of_a_cache(keys, page, dim):
    """Sequences use some of the entries, or rows of the table, in any order."""
    kvcache(keys=keys, page=page or 16, entries="shuffled", head_dim=dim).check()


@pytest.mark.parametrize("keys,page", [("cache", 0), ("paged", 7), ("paged", 64), ("lists", 16)])
@pytest.mark.parametrize("mask", [{}, {"window": (20, 0)}, {"causal": False}], ids=str)
def test_padding_on_the_left(keys, page, mask):
    """As many keys as the padding has are none, and masks count from there."""
    lengths = dict(lens_q=(3,) * 5, leftpad=(5, 0, 40, 64, 1))
    kvcache(keys=keys, page=page or 16, **lengths, **mask).check()


def test_padding_of_entries():
    kvcache(keys="paged", page=16, entries="shuffled", leftpad=(17, 3, 0, 1, 15)).check()


@pytest.mark.parametrize("page", [1, 5, 16])
@pytest.mark.parametrize("name", ["decode", "mixed"])
def test_lists_of_pages(name, page):
    lens_q = {"decode": (1, 1, 1, 1, 1), "mixed": (1, 75, 0, 6, 1)}[name]
    VarlenCase(keys="lists", page=page, **{**LENGTHS, "lens_q": lens_q}).check()


def test_a_cache_by_offsets():
    """cu_seqlens_k only tells the lengths there."""
    VarlenCase(keys="cache by offsets", **LENGTHS).check()


@pytest.mark.parametrize("window", [(-1, -1), (40, -1), (9, 3)], ids=str)
@pytest.mark.parametrize("keys", ["packed", "paged"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_causal_flags(keys, window, dtype):
    lengths = dict(lens_q=(1, 75, 0, 6, 40), lens_k=(LONG, 75, 9, 4, 333), heads=4)
    flags = (0, 1, 1, 0, 0)
    VarlenCase(keys=keys, window=window, dtype=dtype, causal=flags, **lengths).check()
    swapped = tuple(1 - flag for flag in flags)
    VarlenCase(keys=keys, window=window, dtype=dtype, causal=swapped, **lengths).check()


@pytest.mark.parametrize("len_q", [1, 5])
def test_causal_flags_with_a_cache(len_q):
    lengths = dict(lens_q=(len_q,) * 5, causal=(1, 0, 1, 0, 1), alibi="bh", sinks="f32")
    kvcache(keys="paged", softcap=20.0, **lengths).check()


def test_a_variant_sees_sequences_and_not_entries():
    near = jit.Variant("near", tensors={"reach": "i32[b]"}, mask="q - kv < reach")
    case = kvcache(keys="cache", entries="shuffled", causal=False)
    given = case.inputs()
    call = case.call(given)
    reach = (9, 1, 4, 50, 2)
    call.keywords["variant"] = near(reach=integers(reach))
    call.run()
    for b, (q, k, v) in enumerate(given):
        expected = torch.empty_like(q)
        window = (reach[b] - 1, 0)
        jit.flash_attention(q[None], k[None], v[None], window=window, out=expected[None])
        error = (call.queries(call.out.view, b).float() - expected.float()).abs().max()
        assert error < 0.02


# ---------------------------------------------------------------------------- new keys and values


def rotated(x, cos, sin, positions, interleaved):
    """x [len, heads, dim], whose first elements rotate by the tables' rows `positions`: the least
    and the greatest that a computation in float32 may round to x's dtype.

    The compiler may contract a product and a sum to one instruction, which moves the sum by a few
    units in float32's last place. Where it lies between two numbers of x's dtype, that decides."""
    angles = cos.shape[1]
    c, s = (t.double()[positions][:, None] for t in (cos, sin))
    turned, size = x.double().clone(), torch.zeros(x.shape, dtype=torch.double, device=x.device)
    if interleaved:
        first, second = slice(0, 2 * angles, 2), slice(1, 2 * angles, 2)
    else:
        first, second = slice(0, angles), slice(angles, 2 * angles)
    a, b = x.double()[..., first], x.double()[..., second]
    turned[..., first], turned[..., second] = a * c - b * s, b * c + a * s
    size[..., first], size[..., second] = (
        (a * c).abs() + (b * s).abs(),
        (b * c).abs() + (a * s).abs(),
    )
    error = 2.0**-22 * size
    return (turned - error).to(x.dtype), (turned + error).to(x.dtype)


def logits_off(least, most, k, scale):
    """By how much the logits [heads, len_q] of queries between these two may be apart."""
    gap = (most.double() - least.double()).abs()
    keys = k.double().abs().repeat_interleave(gap.shape[1] // k.shape[1], 1)
    return scale * torch.einsum("qhd,khd->hqk", gap, keys).amax(-1)


@dataclasses.dataclass(frozen=True)
class Appending:
    """A call with new keys: the last `new` of each sequence's, which the cache does not have."""

    case: VarlenCase
    new: int = 2
    rotary: int = 0  # elements that rotate
    interleaved: bool = True
    table_dtype: torch.dtype = torch.float32

    def lengths(self):
        return [n - self.new for n in self.case.whole_lens_k]

    def tables(self):
        angles = torch.rand([max(self.case.whole_lens_k) + 30, self.rotary // 2]) * 6
        return tuple(t.to(self.table_dtype).to(DEVICE) for t in (angles.cos(), angles.sin()))

    def turned(self, given, cos, sin):
        """The rotated queries and new keys of each sequence, each the least and the most."""
        steps = self.case.causal or self.case.window != (-1, -1)
        for first, (q, k, _) in zip(self.lengths(), given):
            at = first + torch.arange(max(self.new, len(q)), device=DEVICE)
            at_q = at[: len(q)] if steps else at[:1].expand(len(q))
            yield (
                rotated(q, cos, sin, at_q, self.interleaved),
                rotated(k[len(k) - self.new :], cos, sin, at[: self.new], self.interleaved),
            )

    def run(self):
        given = self.case.inputs()
        call = self.case.call(given)
        fresh = [torch.stack([x[i][len(x[i]) - self.new :] for x in given]) for i in (1, 2)]
        options = dict(k_new=fresh[0], v_new=fresh[1])
        turned = [((q, q), (k, k)) for (q, _, _), k in zip(given, fresh[0])]
        if self.rotary:
            cos, sin = self.tables()
            options.update(rotary_cos=cos, rotary_sin=sin, rotary_interleaved=self.interleaved)
            turned = list(self.turned(given, cos, sin))
        expected = [(call.k.clone(), call.k.clone()), (call.v.clone(), call.v.clone())]
        wheres = [call.where(b, len(x[1]) - self.new, len(x[1])) for b, x in enumerate(given)]
        for b, where in enumerate(wheres):
            call.k[where] = call.v[where] = math.nan  # what is new is not there yet
            for bound in range(2):
                expected[0][bound][where] = turned[b][1][bound]
                expected[1][bound][where] = fresh[1][b]
        call.keywords.update(cache_seqlens=integers(self.lengths()), **options)
        q = call.q.clone()
        call.run()
        assert torch.equal(call.q, q), "q was written"
        for cache, (least, most) in zip((call.k, call.v), expected):
            assert (((least <= cache) & (cache <= most)) | (cache.isnan() & least.isnan())).all()
        self.judge(call, given, turned, wheres)
        return call

    def judge(self, call, given, turned, wheres):
        """Against the keys that the cache has now, and queries that no one sees."""
        scale = self.case.scale or self.case.head_dim**-0.5
        seen, off = [], []
        for ((least, most), _), (_, k, v), where in zip(turned, given, wheres):
            k = torch.cat([k[: len(k) - self.new], call.k[where]])
            seen.append((least, k, v))
            off.append(logits_off(least, most, k, scale))
        call.judge(seen, off if self.rotary else None)


NEW = dict(lens_k=(300, 5, 64, 17, 2), heads=8)


@pytest.mark.parametrize("keys,page", [("cache", 0), ("paged", 16), ("paged", 7), ("lists", 5)])
@pytest.mark.parametrize("len_q,new", [(1, 1), (2, 2), (5, 2), (1, 2)])
def test_new_keys(keys, page, len_q, new):
    case = kvcache(keys=keys, page=page or 16, lens_q=(len_q,) * 5, **NEW)
    Appending(case, new=new).run()


@pytest.mark.parametrize("dims", [(128, 128), (72, 72), (40, 64), (192, 128)], ids=str)
def test_new_keys_of_every_head_dim(dims):
    case = kvcache(head_dim=dims[0], head_dim_v=dims[1], entries="shuffled", dtype="f16", **NEW)
    Appending(case).run()


def test_new_keys_beside_padding_on_the_left():
    Appending(kvcache(leftpad=(3, 0, 20, 1, 5), entries="shuffled", **NEW)).run()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rotary,dtype", [(64, torch.float32), (32, torch.bfloat16)])
def test_rotation(rotary, dtype, interleaved, causal):
    case = kvcache(lens_q=(2,) * 5, causal=causal, **NEW)
    Appending(case, rotary=rotary, interleaved=interleaved, table_dtype=dtype).run()


@pytest.mark.parametrize("keys", ["cache", "lists"])
@pytest.mark.parametrize("len_q,new", [(1, 1), (3, 1), (1, 3), (20, 2)])
def test_rotation_of_more_or_fewer_queries(keys, len_q, new):
    case = kvcache(keys=keys, lens_q=(len_q,) * 5, **{**NEW, "lens_k": (300, 5, 64, 17, 3)})
    Appending(case, new=new, rotary=64).run()


def test_rotation_beside_wider_values_and_padding():
    case = kvcache(head_dim=64, head_dim_v=128, lens_q=(3,) * 5, leftpad=(2, 0, 9, 1, 3), **NEW)
    Appending(case, rotary=64).run()


def test_rotated_queries_in_place():
    """out may be q itself."""
    case = kvcache(lens_q=(2,) * 5, **NEW)
    q = randn([2, 3, 4, 64], torch.bfloat16, 1)
    k, v = randn([2, 2, 3, 2, 64], torch.bfloat16, 2)
    caches = [randn([2, 9, 2, 64], torch.bfloat16, 3) for _ in range(4)]
    cos, sin = randn([2, 9, 32], torch.float32, 4)
    options = dict(cache_seqlens=integers([4, 6]), k_new=k, v_new=v, rotary_cos=cos, rotary_sin=sin,
                   causal=case.causal)  # fmt: skip
    expected = jit.flash_attention_with_kvcache(q, *caches[:2], **options)
    jit.flash_attention_with_kvcache(q, *caches[2:], out=q, **options)
    assert torch.equal(q, expected)


def test_new_keys_that_do_not_fit_are_not_written():
    """Neither behind an entry's end nor behind a row of the table."""
    k, v = randn([2, 1, 3, 2, 64], torch.bfloat16, 2)
    q = randn([1, 1, 4, 64], torch.bfloat16, 1)
    for table in (None, integers([[2, 0]])):
        shape = [3, 8, 2, 64] if table is None else [6, 4, 2, 64]
        cache = torch.zeros(shape, dtype=torch.bfloat16, device=DEVICE)
        values = torch.zeros_like(cache)
        batch = {} if table is None else {"block_table": table}
        entry = {"cache_batch_idx": integers([1])} if table is None else {}
        # The attention would read as far as the keys are said to reach, so that it has none here.
        jit.flash_attention_with_kvcache(
            q[:, :0], cache, values, cache_seqlens=integers([7]), k_new=k, v_new=v, **batch, **entry
        )
        rows = cache[1] if table is None else cache[table[0].long()].flatten(0, 1)
        assert torch.equal(rows[7], k[0, 0]) and cache.count_nonzero() == k[0, 0].count_nonzero()


def test_garbage_behind_the_pages_in_use():
    """Entries behind a table's row in use, and beside a list, may hold anything."""
    case = kvcache(keys="paged", lens_k=(16, 33, 0, 1, 64))
    call = case.call(case.inputs())
    assert (call.keywords["block_table"] == GARBAGE).any()
    case.check()


@pytest.mark.parametrize("len_q", [1, 70], ids=["decode", "prefill"])
@pytest.mark.parametrize("page", [1, 16, 64])
def test_pages_beyond_31_bits(page, len_q):
    """A cache of more than 2^31 elements, keys beside values. Host memory that is not touched costs
    nothing."""
    heads_kv, dim, length = 2, 64, 150
    pages = 2**31 // (page * heads_kv * 2 * dim) + 1
    cache = torch.empty([pages, page, heads_kv, 2 * dim], dtype=torch.bfloat16, device=DEVICE)
    count = -(-length // page)
    # From both ends: an offset that wraps around ends in a page of another place.
    table = torch.tensor([pages - 1 - i if i % 2 == 0 else i for i in range(count)], device=DEVICE)
    rows = randn([count, page, heads_kv, 2 * dim], torch.bfloat16, 1)
    cache[table] = rows
    q = randn([len_q, 4, dim], torch.bfloat16, 2)
    out, lse = jit.flash_attention_varlen(
        q, cache[..., :dim], cache[..., dim:], cu_seqlens_q=integers([0, len_q]),
        seqused_k=integers([length]), block_table=table.int()[None], max_seqlen_q=len_q,
        max_seqlen_k=count * page, causal=True, return_lse=True,
    )  # fmt: skip
    k, v = rows.flatten(0, 1)[None, :length].split(dim, dim=-1)
    judge("far pages", q[None], k, v, out[None], lse[None], causal=True)


@pytest.mark.cuda
def test_a_graph_appends_at_the_lengths_of_each_replay():
    """A decoding loop of which only the lengths change: the result is that of separate calls."""
    steps, batch = 4, 3
    q, k, v = (randn([steps, batch, 1, heads, 64], torch.bfloat16, i)
               for i, heads in ((1, 8), (2, 2), (3, 2)))  # fmt: skip
    table = torch.randperm(12, generator=torch.Generator().manual_seed(1)).view(3, 4).int()
    options = dict(block_table=table.to(DEVICE), causal=True, num_splits=1)
    cos, sin = randn([2, 64, 32], torch.float32, 4)
    options.update(rotary_cos=cos, rotary_sin=sin)
    lengths = integers([7, 0, 30])
    results = []
    for captured in (False, True):
        caches = [torch.zeros([12, 16, 2, 64], dtype=torch.bfloat16, device=DEVICE) for _ in "kv"]
        given = [x[0].clone() for x in (q, k, v)]
        out, used = torch.empty_like(given[0]), lengths.clone()
        step = functools.partial(
            jit.flash_attention_with_kvcache, given[0], *caches, cache_seqlens=used,
            k_new=given[1], v_new=given[2], out=out, **options,
        )  # fmt: skip
        if captured:
            step()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            step = graph.replay
        outs = []
        for i in range(steps):
            for mine, theirs in zip(given, (q, k, v)):
                mine.copy_(theirs[i])
            step()
            outs.append(out.clone())
            used += 1
        results.append((torch.stack(outs), *caches))
    for one, other in zip(*results):
        assert torch.equal(one, other)
