"""One call of attention over sequences that have lengths of their own: inputs, call, judgement.

Each sequence is an AttentionCase of one batch entry, from which its inputs and its truth come.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import kiln
import torch
from attention_case import AttentionCase, judge
from kiln import jit
from named_case import NamedCase
from storage import DEVICE, DTYPES, F8_DTYPES, place, randn

PADDING = 3  # queries behind the last sequence
GARBAGE = -123456789  # in unused entries of a block table
QUANTIZED = {**F8_DTYPES, "int8": torch.int8}
UNUSED_BYTE = 0xFF  # NaN of both floats


@dataclasses.dataclass(frozen=True)
class VarlenCase(NamedCase):
    lens_q: tuple = (1, 1, 1)
    lens_k: tuple = (70, 0, 200)
    dtype: str = "bf16"
    head_dim: int = 64
    head_dim_v: int = 0
    heads: int = 4
    heads_kv: int = 2
    causal: bool | tuple = True  # or a flag of each sequence
    window: tuple = (-1, -1)
    softcap: float = 0.0
    scale: float | None = None
    alibi: str = ""
    sinks: str = ""
    peak: str = ""
    magnitude: float = 1.0
    keys: str = "paged"  # or "packed", "cache", "lists" (of pages), each also "by offsets"
    page: int = 16
    following: int = 1  # so many pages follow one another in memory
    cache: str = "nhd"  # how pages lie in memory: see caches()
    op: str = "varlen"  # or "kvcache", whose sequences have equally many queries
    num_splits: int = 0
    loose: int = 0  # by which the bounds are too high
    entries: str = ""  # "shuffled": cache_batch_idx names them, and there are more than sequences
    leftpad: tuple = ()  # keys of each sequence that are none, before lens_k
    stored: str = ""  # a dtype of QUANTIZED, "" = dtype
    byte_queries: bool = False  # q is stored likewise; dtype is then that of out
    scales: str = ""  # of stored elements and of q: "" = 1, or a shape of scale_tensor()
    out_scale: float = 0.0  # out is e4m3 and divided by it; 0 = out has q's dtype
    placed: str = "guarded"  # where out lies: see place()
    variant: object = None  # the variant's bound() and in_textbook(first_entry), such as Hooks

    @property
    def batch(self):
        return len(self.lens_q)

    @property
    def whole_lens_k(self):
        """With the padding, as the call is told."""
        return tuple(map(sum, zip(self.lens_k, self.leftpad or [0] * self.batch)))

    def sequence(self, b):
        shared = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name in AttentionCase.__dataclass_fields__
        }
        if isinstance(self.causal, tuple):
            shared["causal"] = bool(self.causal[b])
        return AttentionCase(batch=1, len_q=self.lens_q[b], len_kv=self.lens_k[b], **shared)

    def options(self):
        options = self.sequence(0).options()
        if isinstance(self.causal, tuple):
            options["causal"] = integers(self.causal)
        if self.alibi == "bh":
            slopes = randn([self.batch, self.heads], torch.float32, 11).abs() * 0.1
            options["alibi_slopes"] = slopes
        return options

    def inputs(self, seed=0):
        """q, k and v of each sequence."""
        given = []
        for b in range(self.batch):
            q, k, v = (x[0] for x in self.sequence(b).inputs(seed + 10 * b))
            if self.stored:
                k, v = (self.multiples(self.bytes(x, b, i), b, i) for x, i in ((k, 0), (v, 1)))
            if self.byte_queries:
                q = q.to(QUANTIZED[self.stored]).to(q.dtype)
            given.append((q, k, v))
        return given

    def scale_tensor(self, which):
        """q_scale, k_scale or v_scale."""
        heads = [self.heads_kv]
        shape = {"one": [], "heads": heads, "far heads": heads, "expanded": []}.get(
            self.scales, [self.batch, self.heads_kv]
        )
        size = 0.7 if which == 0 else 0.03
        numbers = size * (1 + torch.rand(shape, generator=torch.Generator().manual_seed(which)))
        if self.scales == "far heads" and which > 0:  # 100 times from the first to the last
            numbers *= torch.logspace(-0.5, 0.5, self.heads_kv, base=100)
        numbers = numbers.to(DEVICE)
        if self.scales != "expanded":
            return numbers
        return numbers.expand(self.batch, self.heads_kv)

    def scale_of(self, b, i):
        """The scales of stored keys (i = 0) or values (i = 1), [heads_kv, 1].

        That of q is counted among the keys'."""
        if not self.scales:
            return torch.ones([self.heads_kv, 1], device=DEVICE)
        all_of = [
            self.scale_tensor(which).expand(self.batch, self.heads_kv)[b, :, None]
            for which in range(3)
        ]
        return all_of[0] * all_of[1] if i == 0 else all_of[2]

    def bytes(self, x, b, i):
        """x over its scale, saturated, as PyTorch casts what is too large to NaN."""
        exact = x.float() / self.scale_of(b, i)
        if self.stored == "int8":
            return exact.round().clamp(-128, 127).to(torch.int8)
        largest = torch.finfo(QUANTIZED[self.stored]).max
        return exact.clamp(-largest, largest).to(QUANTIZED[self.stored])

    def multiples(self, stored, b, i):
        return stored.float() * self.scale_of(b, i)

    def call(self, given):
        return Call(self, given)

    def run(self):
        self.call(self.inputs()).run()

    def explain(self):
        return self.call(self.inputs()).explain()

    def check(self, seed=0):
        given = self.inputs(seed)
        call = self.call(given)
        call.run()
        call.judge(given)
        return call


def unused(shape, dtype):
    if dtype.itemsize > 1:
        return torch.full(shape, math.nan, dtype=dtype, device=DEVICE)
    return torch.full(shape, UNUSED_BYTE, dtype=torch.uint8, device=DEVICE).view(dtype)


def movable(x):
    """PyTorch copies some 8-bit dtypes only as integers."""
    return x.view(torch.uint8) if x.dtype.itemsize == 1 else x


def caches(kind, pages, page, heads, dims, dtype):
    """K's and V's caches [pages, page, heads, dim], all NaN.

    nhd: contiguous. hnd: heads before tokens. interleaved: K and V side by side in each row. pool:
    the pages of another layer lie between. padded: rows begin at multiples of 16 elements.
    """
    k_dim, v_dim = dims
    nan = functools.partial(unused, dtype=dtype)
    if kind == "interleaved":
        both = nan([pages, page, heads, k_dim + v_dim])
        return both[..., :k_dim], both[..., k_dim:]
    if kind == "hnd":
        return tuple(nan([pages, heads, page, dim]).transpose(1, 2) for dim in dims)
    if kind == "pool":
        return tuple(nan([pages, 2, page, heads, dim])[:, 1] for dim in dims)
    if kind == "padded":
        return tuple(nan([pages, page, heads, -(-dim // 16) * 16])[..., :dim] for dim in dims)
    if kind == "offset":  # bases off by one element
        sizes = [pages * page * heads * dim for dim in dims]
        return tuple(
            nan([size + 1])[1:].view(pages, page, heads, dim) for size, dim in zip(sizes, dims)
        )
    assert kind == "nhd", kind
    return tuple(nan([pages, page, heads, dim]) for dim in dims)


def integers(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def starts(lengths):
    return integers([sum(lengths[:i]) for i in range(len(lengths) + 1)])


class Call:
    """The tensors of one call of a case."""

    def __init__(self, case, given):
        self.case = case
        dtype = DTYPES[case.dtype]
        q_dtype = QUANTIZED[case.stored] if case.byte_queries else dtype
        dims = case.head_dim, case.head_dim_v or case.head_dim
        self.keywords = {**case.options(), "num_splits": case.num_splits}
        if case.variant:
            self.keywords["variant"] = case.variant.bound()
        self.pads = case.leftpad or [0] * case.batch
        self.entries = list(range(case.batch))
        self.entry_count = case.batch
        if case.entries == "shuffled":
            self.entry_count += 2
            generator = torch.Generator().manual_seed(8)
            order = torch.randperm(self.entry_count, generator=generator)
            self.entries = order[: case.batch].tolist()
            self.keywords["cache_batch_idx"] = integers(self.entries)
        if case.leftpad:
            self.keywords["cache_leftpad"] = integers(case.leftpad)
        tokens = sum(case.lens_q)
        if case.op == "varlen":
            shape = [tokens + PADDING, case.heads]
            lse_shape = [case.heads, tokens + PADDING]
            self.q = torch.full([*shape, dims[0]], math.nan, device=DEVICE).to(q_dtype)
            self.keywords.update(
                cu_seqlens_q=starts(case.lens_q),
                max_seqlen_q=max(case.lens_q) + case.loose,
                max_seqlen_k=max(case.lens_k) + case.loose,
            )
        else:
            shape = [case.batch, case.lens_q[0], case.heads]
            lse_shape = [case.batch, case.heads, case.lens_q[0]]
            self.q = torch.empty([*shape, dims[0]], dtype=q_dtype, device=DEVICE)
        for b, (q, _, _) in enumerate(given):
            self.queries(self.q, b).copy_(q)
        stored = given
        if case.stored:
            stored = [
                (q, case.bytes(k, b, 0), case.bytes(v, b, 1)) for b, (q, k, v) in enumerate(given)
            ]
        if case.scales:
            names = ("q_scale", "k_scale", "v_scale")
            self.keywords.update({name: case.scale_tensor(i) for i, name in enumerate(names)})
        kind = QUANTIZED.get(case.stored, dtype)
        getattr(self, "_" + case.keys.split()[0])(stored, dims, kind)
        if case.out_scale:
            self.keywords["out_scale"] = torch.tensor(case.out_scale, device=DEVICE)
            dtype = QUANTIZED["e4m3"]
        self.out = place(case.placed, [*shape, dims[1]], dtype)
        self.lse = torch.full(lse_shape, math.nan, device=DEVICE)

    def queries(self, tensor, b):
        """The rows of sequence b."""
        if self.case.op == "kvcache":
            return tensor[b]
        first = sum(self.case.lens_q[:b])
        return tensor[first : first + self.case.lens_q[b]]

    def lse_of(self, b):
        if self.case.op == "kvcache":
            return self.lse[b]
        first = sum(self.case.lens_q[:b])
        return self.lse[:, first : first + self.case.lens_q[b]]

    def _packed(self, given, dims, dtype):
        self.k, self.v = (torch.cat([movable(x[i]) for x in given]).view(dtype) for i in (1, 2))
        self.keywords["cu_seqlens_k"] = starts(self.case.lens_k)

    def where(self, b, begin, end):
        """The index of keys begin .. end - 1 of sequence b in the cache."""
        rows = torch.arange(begin, end, device=DEVICE) + self.pads[b]
        entry = self.entries[b]
        if self.pages is None:
            return torch.full_like(rows, entry), rows
        return self.pages[entry, rows // self.case.page].long(), rows % self.case.page

    def _fill(self, given):
        for b, (_, k, v) in enumerate(given):
            where = self.where(b, 0, len(k))
            movable(self.k)[where], movable(self.v)[where] = movable(k), movable(v)
        self._say_lengths()

    def _cache(self, given, dims, dtype):
        bound = self.case.loose if self.case.op == "kvcache" else 0
        rows = max(self.case.whole_lens_k) + 5 + bound
        self.k, self.v = caches(
            self.case.cache, self.entry_count, rows, self.case.heads_kv, dims, dtype
        )
        self.pages = None
        self._fill(given)

    def _paged(self, given, dims, dtype):
        page = self.case.page
        width = max(self.case.whole_lens_k) // page + 2
        pages = self.entry_count * width + 1
        self.k, self.v = caches(self.case.cache, pages, page, self.case.heads_kv, dims, dtype)
        runs = torch.arange(pages).split(self.case.following)
        order = torch.randperm(len(runs), generator=torch.Generator().manual_seed(7))
        table = torch.cat([runs[i] for i in order])[: self.entry_count * width]
        self.pages = table.view(self.entry_count, width).int().to(DEVICE)
        self._fill(given)
        # A page without a key may hold anything: that of padding, or of no sequence.
        used = [[] for _ in range(self.entry_count)]
        for b, entry in enumerate(self.entries):
            used[entry] = range(self.pads[b] // page, -(-self.case.whole_lens_k[b] // page))
        self.keywords["block_table"] = torch.full_like(self.pages, GARBAGE)
        for entry, columns in enumerate(used):
            columns = list(columns)
            self.keywords["block_table"][entry, columns] = self.pages[entry, columns]
        self.last_pages = [max(columns, default=-1) + 1 for columns in used]

    def _lists(self, given, dims, dtype):
        """The table's rows end to end, behind a page of no sequence."""
        self._paged(given, dims, dtype)
        table = self.keywords.pop("block_table")
        rows = [row[:count] for row, count in zip(table, self.last_pages)]
        self.keywords["kv_indices"] = torch.cat([table.new_full([1], GARBAGE), *rows])
        self.keywords["kv_indptr"] = starts(self.last_pages) + 1

    def _say_lengths(self):
        if self.case.op == "kvcache":
            self.keywords["cache_seqlens"] = integers(self.case.whole_lens_k)
        elif self.case.keys.endswith("by offsets"):
            self.keywords["cu_seqlens_k"] = starts(self.case.lens_k)
        else:
            self.keywords["seqused_k"] = integers(self.case.lens_k)

    @property
    def name(self):
        return {"varlen": "flash_attention_varlen", "kvcache": "flash_attention_with_kvcache"}[
            self.case.op
        ]

    def run(self):
        getattr(jit, self.name)(
            self.q, self.k, self.v, out=self.out.view, lse=self.lse, **self.keywords
        )

    def explain(self):
        return kiln.explain(
            self.name, self.q, self.k, self.v, out=self.out.view, lse=self.lse, **self.keywords
        )

    def options_of(self, b):
        """Tells the options of sequence b as the textbook takes them."""
        options = self.case.sequence(b).options()
        if self.case.alibi == "bh":
            options["alibi_slopes"] = self.keywords["alibi_slopes"][b : b + 1]
        if self.case.variant:
            options.update(self.case.variant.in_textbook(b))
        return options

    def judge(self, given, logits_off=None):
        """Each sequence against the textbook; padding and memory around `out` must be untouched.

        logits_off: by how much each query's logits may be off, a tensor [heads, len_q] for each
        sequence."""
        for b, (q, k, v) in enumerate(given):
            options = self.options_of(b)
            judge(
                f"{self.case}, sequence {b}",
                *(x[None] for x in (q, k, v)),
                self.queries(self.out.view, b)[None],
                self.lse_of(b)[None],
                logits_off=None if logits_off is None else logits_off[b][None],
                out_scale=self.case.out_scale,
                weights_dtype=QUANTIZED["e4m3"] if self.case.byte_queries else None,
                **options,
            )
        self.out.check_untouched(str(self.case))
        if self.case.op == "varlen":
            tokens = sum(self.case.lens_q)
            assert self.out.view[tokens:].float().isnan().all(), f"{self.case}: padding was written"
            assert self.lse[:, tokens:].isnan().all(), f"{self.case}: padding's lse was written"


def check_beside_larger_queries(**options):
    """A sequence's result is the same to the last bit whatever the size of the next one's queries,
    some of which lie in the same tile."""
    case = VarlenCase(lens_q=(70, 70), lens_k=(700, 700), heads=2, keys="packed", num_splits=1)
    case = dataclasses.replace(case, **options)
    outs = []
    for factor in (1, 50):
        given = case.inputs()
        given[1][0].mul_(factor)
        call = case.call(given)
        call.run()
        call.judge(given)
        outs.append(call.queries(call.out.view, 0))
    assert torch.equal(*outs)
