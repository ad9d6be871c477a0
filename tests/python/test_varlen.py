"""Arguments of jit.flash_attention_varlen and jit.flash_attention_with_kvcache, and the operators
behind them: each mistake gets one sentence, which docs/troubleshooting.md lists. What the kernels
compute is tested in tests/kernels."""

import kiln
import kiln.operators
import numpy as np
import pytest
import torch
from kiln import jit
from message_page import check
from torch._subclasses import FakeTensorMode

HALF = np.float16


def array(*shape, dtype=HALF):
    return np.zeros(shape, dtype)


def numbers(*values):
    return np.array(values, np.int32)


def varlen(**changes):
    """Two sequences, of 2 and 3 tokens; None leaves an argument out."""
    arguments = {
        "q": array(5, 4, 64), "k": array(5, 2, 64), "v": array(5, 2, 64),
        "cu_seqlens_q": numbers(0, 2, 5), "cu_seqlens_k": numbers(0, 2, 5),
        "max_seqlen_q": 3, "max_seqlen_k": 3, **changes,
    }  # fmt: skip
    given = {name: value for name, value in arguments.items() if value is not None}
    return jit.flash_attention_varlen(**given)


def paged(**changes):
    """The same with keys in three pages of 4 rows."""
    cache = array(3, 4, 2, 64)
    pages = {"block_table": np.zeros((2, 2), np.int32), "seqused_k": numbers(2, 3)}
    return varlen(**{"k": cache, "v": cache, "cu_seqlens_k": None, **pages, **changes})


def kvcache(**changes):
    arguments = {
        "q": array(2, 1, 4, 64), "k_cache": array(2, 8, 2, 64), "v_cache": array(2, 8, 2, 64),
        "cache_seqlens": numbers(3, 8), **changes,
    }  # fmt: skip
    return jit.flash_attention_with_kvcache(**arguments)


def quantised(**changes):
    cache = array(3, 4, 2, 64, dtype=np.int8)
    return paged(**{"k": cache, "v": cache, **changes})


def scale(*shape):
    return np.ones(shape, np.float32)


def indexed(index):
    """A variant whose only tensor has this index."""
    declared = jit.Variant("mine", tensors={"t": f"f32[{index}]"}, logits="logit + t")
    return declared(t=array(3, dtype=np.float32))


REFUSED = [
    (lambda: varlen(q=array(1, 5, 4, 64)), ValueError,
     "flash_attention_varlen: q must have 3 dimensions [tokens, heads, head_dim], got [1, 5, 4"),
    (lambda: kvcache(q=array(2, 4, 64)), ValueError,
     "flash_attention_with_kvcache: q must have 4 dimensions [batch, len_q, heads, head_dim], got"),
    (lambda: kvcache(k_cache=array(16, 2, 64)), ValueError,
     "k_cache must have 4 dimensions [batch or pages, length or page_size, heads, head_dim], got"),
    (lambda: varlen(q=array(5, 4, 64, dtype=np.float32)), TypeError,
     "q must be float16 or bfloat16, got float32; cast the inputs to one of them"),
    (lambda: varlen(v=array(5, 2, 64, dtype=np.float32)), TypeError,
     "v must be float16 like q, got float32"),
    (lambda: varlen(k=array(5, 2, 64, dtype=np.float32)), TypeError,
     "k must be float16 like q, or quantised: float8_e4m3fn, float8_e5m2 or int8; got float32"),
    (lambda: paged(k=array(3, 4, 2, 64, dtype=np.int8)), TypeError,
     "v must be int8 like the keys, got float16"),
    (lambda: varlen(k_scale=scale(1)), ValueError,
     "flash_attention_varlen: k_scale is of quantised caches, and this one is float16; leave it"),
    (lambda: quantised(k_scale=scale(3, 4, 2)), ValueError,
     "k_scale must have shape [] or [1] (one for all), [2] (one for each KV head) or [2, 2] (and "
     "for each sequence), got [3, 4, 2]; scales of single tokens are not supported"),
    (lambda: quantised(v_scale=scale(12, 2)), ValueError, "v_scale must have shape [] or [1] (one"),
    (lambda: quantised(q_scale=np.ones(2, HALF)), TypeError,
     "q_scale must be float32, got float16"),
    (lambda: varlen(k=array(5, 2, 32)), ValueError,
     "k must have the head dim of q, which is [5, 4, 64]; it is [5, 2, 32]"),
    (lambda: varlen(v=array(6, 2, 64)), ValueError,
     "v must have the shape of k but for the head dim, which is [5, 2, 64]; it is [6, 2, 64]"),
    (lambda: kvcache(v_cache=array(2, 9, 2, 64)), ValueError,
     "v_cache must have the shape of k_cache but for the head dim, which is"),
    (lambda: varlen(q=array(5, 3, 64)), ValueError, "q must have a multiple of the heads of k"),
    (lambda: paged(k=array(3, 0, 2, 64), v=array(3, 0, 2, 64)), ValueError,
     "flash_attention_varlen: k has pages of no rows"),
    (lambda: paged(block_table=None), ValueError,
     "k must have one entry for each of 2 sequences, got [3, 4, 2, 64]; pages need a block_table"),
    (lambda: paged(block_table=np.zeros((3, 2), np.int32)), ValueError,
     "block_table must have a row for each of 2 sequences, got [3, 2]"),
    (lambda: paged(block_table=numbers(0, 1)), ValueError,
     "block_table must have 2 dimensions [batch, pages], got [2]"),
    (lambda: paged(block_table=np.zeros((2, 2), np.int64)), TypeError,
     "block_table must be int32"),
    (lambda: varlen(cu_seqlens_k=None), ValueError,
     "cu_seqlens_k is needed where k is packed, [tokens, heads, head_dim]"),
    (lambda: paged(seqused_k=None), ValueError,
     "seqused_k or cu_seqlens_k is needed: how many keys of the cache each sequence has"),
    (lambda: varlen(cu_seqlens_q=None), TypeError, "missing the argument 'cu_seqlens_q'"),
    (lambda: kvcache(cache_seqlens=None), TypeError, "cache_seqlens must be a tensor, got None"),
    (lambda: varlen(cu_seqlens_q=numbers()), ValueError,
     "cu_seqlens_q must have batch + 1 entries, got none"),
    (lambda: varlen(cu_seqlens_q=np.zeros((1, 3), np.int32)), ValueError,
     "cu_seqlens_q must have 1 dimensions [batch + 1], got [1, 3]"),
    (lambda: varlen(cu_seqlens_q=np.zeros(3, np.int64)), TypeError, "cu_seqlens_q must be int32"),
    (lambda: varlen(cu_seqlens_k=numbers(0, 5)), ValueError,
     "cu_seqlens_k must have shape [3], got [2]"),
    (lambda: varlen(seqused_k=numbers(1)), ValueError, "seqused_k must have shape [2], got [1]"),
    (lambda: kvcache(cache_seqlens=numbers(1, 2, 3)), ValueError,
     "cache_seqlens must have shape [2], got [3]"),
    (lambda: varlen(max_seqlen_q=-1), ValueError, "max_seqlen_q must be 0 or more, got -1"),
    (lambda: varlen(max_seqlen_k=2**40), ValueError, "max_seqlen_k has 1099511627776 rows"),
    (lambda: varlen(max_seqlen_q="3"), TypeError, "max_seqlen_q must be"),
    (lambda: varlen(num_splits=2), ValueError,
     "num_splits must be 0 (as many as fill the device) or 1 (none), got 2"),
    (lambda: kvcache(num_splits=-1), ValueError, "num_splits must be 0 (as many as fill"),
    (lambda: varlen(variant=indexed("q")), ValueError,
     "variant has tensor 't', which is indexed by q; sequences end at different keys, so index it"),
    (lambda: varlen(out=array(5, 4, 32)), ValueError, "out must have shape [5, 4, 64], got"),
    (lambda: varlen(lse=array(5, 4, dtype=np.float32)), ValueError,
     "lse must have shape [4, 5], got [5, 4]"),
    (lambda: kvcache(lse=array(2, 1, 4, dtype=np.float32)), ValueError,
     "lse must have shape [2, 4, 1], got"),
    (lambda: varlen(window=(-2, 0)), ValueError, "window must be (left, right) with each >= -1"),
    (lambda: varlen(softcap=-1.0), ValueError, "softcap must be a finite number >= 0"),
    (lambda: varlen(layout="bhsd"), TypeError, "got an unexpected keyword argument 'layout'"),
    (lambda: kvcache(attn_mask=array(1)), TypeError, "unexpected keyword argument 'attn_mask'"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def emulated():
    with kiln.device("emulator:sm_80"), torch.no_grad():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("call, kind, text", REFUSED, ids=[text[:60] for *_, text in REFUSED])
def test_a_mistake_gets_a_sentence_that_the_page_lists(call, kind, text):
    with pytest.raises(kind) as error:
        call()
    check(error.value, kind, text)


def test_what_may_not_be_given_is_refused_before_anything_compiles():
    with kiln.no_compile():
        for call, kind, _ in REFUSED:
            with pytest.raises(kind):
                call()


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 2)], ids=str)
def test_scales_that_are_taken(shape):
    """For all, for each KV head, for each sequence, too."""
    q = np.ones((5, 4, 64), HALF)
    v = np.ones((3, 4, 2, 64), np.int8)
    three = np.full(shape, 3, np.float32)
    out = quantised(q=q, v=v, q_scale=scale(*shape), k_scale=scale(*shape), v_scale=three)
    assert (out == 3).all()


def test_a_variant_indexed_by_row_is_taken():
    assert varlen(variant=indexed("row")).shape == (5, 4, 64)


def test_a_variant_tells_sequences_apart():
    """docs/serving.md: a window for each of them."""
    windows = jit.Variant("windows", tensors={"left": "i32[b]"}, mask="q - kv <= left")
    q, k = torch.randn(2, 7, 2, 64).half()
    starts = torch.tensor([0, 4, 7], dtype=torch.int32)
    left = torch.tensor([2, 0], dtype=torch.int32)
    out = jit.flash_attention_varlen(q, k, k, cu_seqlens_q=starts, cu_seqlens_k=starts,
                                     max_seqlen_q=4, max_seqlen_k=4, causal=True,
                                     variant=windows(left=left))  # fmt: skip
    for b, rows in enumerate((slice(0, 4), slice(4, 7))):
        alone = jit.flash_attention(q[None, rows], k[None, rows], k[None, rows], causal=True,
                                    window=(int(left[b]), 0))  # fmt: skip
        torch.testing.assert_close(out[rows], alone[0], atol=2e-3, rtol=1e-2)


def test_explanations_name_the_path_and_the_storage():
    arguments = {"cache_seqlens": numbers(3, 8), "num_splits": 1}
    cache = array(2, 8, 2, 64)
    call = kiln.explain("flash_attention_with_kvcache", array(2, 1, 4, 64), cache, cache,
                        **arguments)  # fmt: skip
    assert call["spec"]["storage"] == "ragged"
    pages = np.zeros((2, 2), np.int32)
    call = kiln.explain("flash_attention_with_kvcache", array(2, 1, 4, 64), cache, cache,
                        block_table=pages, **arguments)  # fmt: skip
    assert call["spec"]["storage"] == "paged"
    assert call["spec"]["cache_dtype"] is None
    assert call["path"] == "varlen"
    stored = cache.astype(np.int8)
    call = kiln.explain("flash_attention_with_kvcache", array(2, 1, 4, 64), stored, stored,
                        block_table=pages, **arguments)  # fmt: skip
    assert call["spec"]["cache_dtype"] == "int8"


# ------------------------------------------------------------------------- PyTorch's operators


def half(*shape):
    return torch.randn(shape).half()


def packed(**changes):
    starts = torch.tensor([0, 2, 5], dtype=torch.int32)
    return {"q": half(5, 4, 64), "k": half(5, 2, 64), "v": half(5, 2, 64), "cu_seqlens_q": starts,
            "cu_seqlens_k": starts, "max_seqlen_q": 3, "max_seqlen_k": 3, **changes}  # fmt: skip


def cached(**changes):
    lengths = torch.tensor([3, 8], dtype=torch.int32)
    return {"q": half(2, 1, 4, 64), "k_cache": half(2, 8, 2, 64), "v_cache": half(2, 8, 2, 64),
            "cache_seqlens": lengths, **changes}  # fmt: skip


CACHE_OF_THREE = torch.zeros(3, 8, 2, 64).half()
OPERATORS_REFUSE = [
    ("flash_attention_varlen", packed(num_splits=2), ValueError, "num_splits must be 0"),
    ("flash_attention_varlen", packed(max_seqlen_q=-1), ValueError, "max_seqlen_q must be 0 or"),
    ("flash_attention_varlen", packed(cu_seqlens_k=None), ValueError,
     "cu_seqlens_k is needed where k is packed"),
    ("flash_attention_varlen", packed(cu_seqlens_q=torch.zeros(3)), TypeError,
     "cu_seqlens_q must be int32"),
    ("flash_attention_varlen_out", packed(out=half(5, 4, 32)), ValueError, "out must have shape"),
    ("flash_attention_with_kvcache", cached(q=half(2, 4, 64)), ValueError,
     "q must have 4 dimensions [batch, len_q, heads, head_dim], got"),
    ("flash_attention_with_kvcache", cached(cache_seqlens=torch.zeros(2)), TypeError,
     "cache_seqlens must be int32"),
    ("flash_attention_with_kvcache_lse",
     cached(k_cache=CACHE_OF_THREE, v_cache=CACHE_OF_THREE), ValueError,
     "pages need a block_table"),
    ("flash_attention_varlen", packed(v_scale=torch.ones(())), ValueError,
     "v_scale is of quantised caches, and this one is float16; leave it out"),
]  # fmt: skip


@pytest.mark.parametrize("name, arguments, kind, text", OPERATORS_REFUSE)
def test_operators_raise_the_same(name, arguments, kind, text):
    with pytest.raises(kind) as error:
        getattr(torch.ops.kiln, name)(**arguments)
    check(error.value, kind, text)


def test_an_operator_takes_a_quantised_cache():
    stored = torch.randint(-9, 9, (2, 8, 2, 64), dtype=torch.int8)
    scales = {"k_scale": torch.tensor(0.25), "v_scale": torch.tensor([0.5, 2.0])}
    arguments = cached(k_cache=stored, v_cache=stored)
    found = torch.ops.kiln.flash_attention_with_kvcache(**arguments, **scales)
    arguments["k_cache"] = (stored * 0.25).half()
    arguments["v_cache"] = (stored * scales["v_scale"][:, None]).half()
    expected = torch.ops.kiln.flash_attention_with_kvcache(**arguments)
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=5e-3)


def test_fake_tensors_give_fake_results():
    with FakeTensorMode():
        starts = torch.empty(3, dtype=torch.int32)
        q, v = (
            torch.empty(5, 4, 64, dtype=torch.float16),
            torch.empty(5, 2, 32, dtype=torch.float16),
        )
        out, lse = jit.flash_attention_varlen(
            q, q[:, :2], v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=3,
            max_seqlen_k=3, return_lse=True,
        )  # fmt: skip
        assert type(out).__name__ == "FakeTensor" and out.shape == (5, 4, 32)
        assert lse.shape == (4, 5) and lse.dtype == torch.float32


def test_a_decoding_step_is_compiled_once_for_all_lengths():
    """Lengths and pages are tensors, so that another step of other lengths needs no new graph."""

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, cache, lengths, pages):
        return jit.flash_attention_with_kvcache(
            q, cache, cache, cache_seqlens=lengths, block_table=pages
        )

    torch._dynamo.reset()
    q, cache = half(2, 1, 4, 64), half(6, 4, 2, 64)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for lengths, pages in ([3, 8], [[1, 0], [4, 2]]), ([5, 1], [[0, 3], [5, 0]]):
            lengths = torch.tensor(lengths, dtype=torch.int32)
            pages = torch.tensor(pages, dtype=torch.int32)
            for b in range(2):
                keys = cache[pages[b].long()].flatten(0, 1)[None, : lengths[b]]
                expected = jit.flash_attention(q[b : b + 1], keys, keys)
                torch.testing.assert_close(step(q, cache, lengths, pages)[b : b + 1], expected,
                                           atol=2e-3, rtol=1e-2)  # fmt: skip
