"""Arguments of jit.flash_attention_varlen and jit.flash_attention_with_kvcache: each mistake gets
one sentence, which docs/troubleshooting.md lists. tests/kernels tests what the kernels compute."""

import kiln
import ml_dtypes
import numpy as np
import pytest
import torch
from kiln import jit
from message_page import check

HALF = np.float16


def array(*shape, dtype=HALF):
    return np.zeros(shape, dtype)


def eight_bits(*shape):
    return np.zeros(shape, ml_dtypes.float8_e4m3fn)


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


def explained(stored=HALF, **options):
    """Explains a decode with a KV cache."""
    cache = array(2, 8, 2, 64, dtype=stored)
    q, used = array(2, 1, 4, 64), numbers(3, 8)
    return kiln.explain(
        "flash_attention_with_kvcache", q, cache, cache, cache_seqlens=used, **options
    )


def quantised(**changes):
    cache = array(3, 4, 2, 64, dtype=np.int8)
    return paged(**{"k": cache, "v": cache, **changes})


def scale(*shape):
    return np.ones(shape, np.float32)


def indexed(index):
    """A variant whose only tensor has this index."""
    declared = jit.Variant("mine", tensors={"t": f"f32[{index}]"}, logits="logit + t")
    return declared(t=array(3, dtype=np.float32))


def appending(**changes):
    """One new key of each sequence, which rotates like its query."""
    new, table = array(2, 1, 2, 64), array(9, 32)
    given = {"k_new": new, "v_new": new, "rotary_cos": table, "rotary_sin": table,
             "cache_seqlens": numbers(3, 7), **changes}  # fmt: skip
    return kvcache(**{name: value for name, value in given.items() if value is not None})


def words(*shape):
    return np.ones(shape, np.int64)


def spread(**changes):
    """Over two devices."""
    return varlen(**{"cp_world": 2, "cp_seqused_k_total": numbers(4, 6), **changes})


def lists(**changes):
    given = {"kv_indptr": numbers(0, 1, 2), "kv_indices": numbers(2, 0), **changes}
    return paged(**{"block_table": None, **given})


PLACES_REFUSED = [
    (lambda: kvcache(cache_batch_idx=numbers(1)), ValueError,
     "flash_attention_with_kvcache: cache_batch_idx must have shape [2], got [1]"),
    (lambda: kvcache(cache_batch_idx=np.zeros(2, np.int64)), TypeError,
     "cache_batch_idx must be int32, got int64"),
    (lambda: kvcache(cache_leftpad=numbers(1, 2, 3)), ValueError,
     "cache_leftpad must have shape [2], got [3]"),
    (lambda: kvcache(k_cache=array(3, 8, 2, 64), v_cache=array(3, 8, 2, 64)), ValueError,
     "k_cache must have one entry for each of 2 sequences, got [3, 8, 2, 64]; pages need a block"),
    (lambda: lists(kv_indices=None), ValueError,
     "kv_indptr goes with kv_indices: give both, or a block_table"),
    (lambda: lists(kv_indptr=None), ValueError, "kv_indptr goes with kv_indices: give both"),
    (lambda: lists(block_table=np.zeros((2, 2), np.int32)), ValueError,
     "kv_indptr stands in the place of a block_table: give one of them"),
    (lambda: lists(kv_indptr=numbers(0, 1)), ValueError,
     "kv_indptr must have batch + 1 entries for 2 sequences, got [2]"),
    (lambda: lists(kv_indptr=np.zeros((1, 3), np.int32)), ValueError,
     "kv_indptr must have 1 dimension [batch + 1], got [1, 3]"),
    (lambda: lists(kv_indices=np.zeros((1, 3), np.int32)), ValueError,
     "kv_indices must have 1 dimension [pages of all sequences], got [1, 3]"),
    (lambda: lists(kv_indices=np.zeros(3, np.int64)), TypeError, "kv_indices must be int32"),
    (lambda: varlen(causal=numbers(1)), ValueError, "causal must have shape [2], got [1]"),
    (lambda: varlen(causal=np.zeros(2, np.int64)), TypeError,
     "causal must be int32, got int64; convert it, for example with tensor.to(torch.int32)"),
    (lambda: varlen(causal="yes"), TypeError, "causal must be True or False, got 'yes'"),
    (lambda: kvcache(causal=1), TypeError, "causal must be True or False, got 1"),
    (lambda: varlen(tree_mask=numbers(1, 1, 1, 1, 1)), TypeError,
     "tree_mask must be int64 or uint64, got int32"),
    (lambda: varlen(tree_mask=words(4)), ValueError, "tree_mask must have shape [5], got [4]"),
    (lambda: kvcache(tree_mask=words(2)), ValueError, "tree_mask must have shape [2, 1], got [2]"),
    (lambda: varlen(tree_mask=words(5), causal=True), ValueError,
     "tree_mask says which new keys each query sees: leave causal as it is"),
    (lambda: varlen(tree_mask=words(5), causal=numbers(0, 0)), ValueError,
     "tree_mask says which new keys each query sees: leave causal as it is"),
    (lambda: varlen(tree_mask=words(5), window=(3, 0)), ValueError,
     "tree_mask must not be given with a window, which counts keys along a sequence and not along "
     "a branch of a tree"),
    (lambda: varlen(tree_mask=words(5), max_seqlen_q=65), ValueError,
     "tree_mask has 64 bits for each query, so that sequences have at most 64 of them, got a bound "
     "of 65; compute longer ones in another call"),
    (lambda: appending(tree_mask=words(2, 1)), ValueError,
     "tree_mask must not be given with rotary_cos, which would rotate siblings as if they followed "
     "each other; rotate with jit.append_kv before the call"),
    (lambda: spread(cp_world=0), ValueError, "cp_world must be 1 to 2^30, got 0"),
    (lambda: spread(cp_rank=2), ValueError,
     "cp_rank must be at least 0 and below cp_world, which is 2, got 2"),
    (lambda: varlen(cp_rank=1), ValueError,
     "cp_rank must be at least 0 and below cp_world, which is 1, got 1"),
    (lambda: spread(cp_interleave=0), ValueError,
     "cp_interleave must be at least 1 and at most 2^30 / cp_world, got 0"),
    (lambda: spread(cp_interleave=2**29 + 1), ValueError, "at most 2^30 / cp_world, got 536870913"),
    (lambda: spread(cp_world=2.0), TypeError, "cp_world must be an integer, got 2.0"),
    (lambda: spread(cp_seqused_k_total=None), ValueError,
     "cp_seqused_k_total is needed where cp_world is above 1: how many keys each sequence has on "
     "all devices"),
    (lambda: spread(cp_seqused_k_total=numbers(1)), ValueError,
     "cp_seqused_k_total must have shape [2], got [1]"),
    (lambda: spread(sinks=array(4)), ValueError,
     "sinks must not be given with cp_world above 1, because every device would count them; give "
     "them to jit.merge_states"),
    (lambda: kvcache(cp_world=2, cp_seqused_k_total=numbers(3, 8), cache_leftpad=numbers(1, 1)),
     ValueError, "cache_leftpad must not be given with cp_world above 1: move the sequences to"),
    (lambda: appending(cp_world=2, cp_seqused_k_total=numbers(3, 8)), ValueError,
     "k_new must not be given with cp_world above 1, because one device alone has a new key; "
     "append it there with jit.append_kv before the call"),
    (lambda: spread(variant=indexed("kv")), ValueError,
     "variant has tensor 't', which is indexed by kv; with cp_world above 1 the length of a "
     "sequence is known on the device alone, so compute with kv instead"),
    (lambda: kvcache(cp_world_size=2), TypeError, "its name here is 'cp_world'"),
    (lambda: appending(v_new=None), ValueError, "k_new goes with v_new: give both, or none"),
    (lambda: appending(k_cache=array(2, 8, 2, 64, dtype=np.int8),
                       v_cache=array(2, 8, 2, 64, dtype=np.int8)), ValueError,
     "k_new must not be given with a quantised cache; jit.append_kv quantises new keys"),
    (lambda: appending(rotary_sin=None), ValueError,
     "rotary_cos goes with rotary_sin: give both, or none"),
    (lambda: appending(k_new=None, v_new=None), ValueError,
     "rotary_cos is of the new keys and their queries: give k_new and v_new too"),
    (lambda: appending(k_new=array(2, 2, 64)), ValueError,
     "k_new must have 4 dimensions [batch, len_new, heads_kv, head_dim], got [2, 2, 64]"),
    (lambda: appending(k_new=array(2, 1, 4, 64)), ValueError,
     "k_new must have shape [2, 1, 2, 64], got [2, 1, 4, 64]"),
    (lambda: appending(v_new=array(2, 2, 2, 64)), ValueError,
     "v_new must have shape [2, 1, 2, 64], got [2, 2, 2, 64]"),
    (lambda: appending(k_new=array(2, 1, 2, 64, dtype=np.float32)), TypeError,
     "k_new must be float16 like k_cache, got float32"),
    (lambda: appending(rotary_cos=array(9, 32, dtype=np.int8)), TypeError,
     "rotary_cos must be float32 or key's dtype, float16, got int8"),
    (lambda: appending(rotary_sin=array(9, 32, dtype=np.float32)), TypeError,
     "rotary_sin must be float16 like rotary_cos, got float32"),
    (lambda: appending(rotary_cos=array(9, 33), rotary_sin=array(9, 33)), ValueError,
     "rotary_cos must have at least one position, and angles for at most a head dim of 64"),
    (lambda: appending(v_cache=array(2, 8, 2, 32), v_new=array(2, 1, 2, 32)), ValueError,
     "rotary_cos needs values whose head dim is at least q's, because rotated queries lie in out "
     "until they are read; got 32 for 64; rotate with jit.append_kv before the call"),
    (lambda: appending(rotary_interleaved="no"), TypeError,
     "rotary_interleaved must be True or False, got 'no'"),
    (lambda: kvcache(k=array(2, 1, 2, 64)), TypeError,
     "unexpected keyword argument 'k'; its name here is 'k_new'"),
    (lambda: kvcache(page_table=numbers(1)), TypeError, "its name here is 'block_table'"),
]  # fmt: skip

REFUSED = [
    (lambda: varlen(q=array(1, 5, 4, 64)), ValueError,
     "flash_attention_varlen: q must have 3 dimensions [tokens, heads, head_dim], got [1, 5, 4"),
    (lambda: kvcache(q=array(2, 4, 64)), ValueError,
     "flash_attention_with_kvcache: q must have 4 dimensions [batch, len_q, heads, head_dim], got"),
    (lambda: kvcache(k_cache=array(16, 2, 64)), ValueError,
     "k_cache must have 4 dimensions [batch or pages, length or page_size, heads, head_dim], got"),
    (lambda: varlen(q=array(5, 4, 64, dtype=np.float32)), TypeError,
     "q must be float16, bfloat16, float8_e4m3fn or float8_e5m2, got float32"),
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
    (lambda: varlen(out_scale=np.ones(1, HALF)), TypeError,
     "out_scale must be float32, got float16"),
    (lambda: varlen(out_scale=scale(2)), ValueError,
     "out_scale must have shape [] or [1], as all results are divided by one number, got [2]"),
    (lambda: varlen(out_scale=scale(1), out=array(5, 4, 64)), TypeError,
     "out must be float8_e4m3fn where out_scale is given, got float16"),
    (lambda: kvcache(out=eight_bits(2, 1, 4, 64)), ValueError,
     "out_scale is needed where out is float8_e4m3fn: a float32 tensor of one number, by which"),
    (lambda: appending(out_scale=scale(1), out=eight_bits(2, 1, 4, 64)), ValueError,
     "rotary_cos must not be given with out_scale, because rotated queries lie in out until they "
     "are read; rotate with jit.append_kv before the call"),
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
     "cu_seqlens_q must have 1 dimension [batch + 1], got [1, 3]"),
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
    *PLACES_REFUSED,
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


def test_new_keys_may_not_overlap_what_is_written():
    caches = array(2, 8, 2, 64), array(2, 8, 2, 64)
    shared = caches[0][:, :1]
    with pytest.raises(ValueError) as error:
        appending(k_cache=caches[0], v_cache=caches[1], k_new=shared)
    check(error.value, ValueError, "k_cache shares memory with k_new, which the call reads while")
    with pytest.raises(ValueError) as error:
        appending(k_cache=caches[0], v_cache=caches[0])
    check(error.value, ValueError, "shares memory with v_cache, which the call writes too")
    once = np.broadcast_to(array(1, 8, 2, 64), (2, 8, 2, 64))
    with pytest.raises((ValueError, TypeError)):
        appending(k_cache=once, v_cache=caches[1])


def test_a_cache_that_may_not_be_written_is_refused_with_new_keys_alone():
    cache = array(2, 8, 2, 64)
    cache.flags.writeable = False
    kvcache(k_cache=cache)
    with pytest.raises(TypeError) as error:
        appending(k_cache=cache)
    assert "k_cache is read-only" in str(error.value)


def test_an_explanation_of_new_keys_has_their_launch_first():
    cache, new, table = array(2, 8, 2, 64), array(2, 1, 2, 64), array(9, 32)
    call = kiln.explain(
        "flash_attention_with_kvcache", array(2, 1, 4, 64), cache, array(2, 8, 2, 64),
        cache_seqlens=numbers(3, 7), k_new=new, v_new=new, rotary_cos=table, rotary_sin=table,
    )  # fmt: skip
    first, *others = call["launches"]
    assert first["spec"]["op"] == "append_kv" and first["spec"]["sequences"]
    assert first["spec"]["rotary"] == 64 and first["spec"]["interleaved"]
    assert [launch["path"] for launch in others] == ["varlen"]


def test_new_keys_without_queries_are_appended():
    caches = array(2, 8, 2, 64), array(2, 8, 2, 64)
    new = np.ones((2, 1, 2, 64), HALF)
    out = kvcache(q=array(2, 0, 4, 64), k_cache=caches[0], v_cache=caches[1], k_new=new,
                  v_new=2 * new, cache_seqlens=numbers(3, 7))  # fmt: skip
    assert out.shape == (2, 0, 4, 64)
    for cache, value in zip(caches, (1, 2)):
        assert (cache[0, 3] == value).all() and (cache[1, 7] == value).all()
        assert np.count_nonzero(cache) == 2 * 2 * 64


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 2)], ids=str)
def test_scales_that_are_taken(shape):
    """For all, for each KV head, for each sequence, too."""
    q = np.ones((5, 4, 64), HALF)
    v = np.ones((3, 4, 2, 64), np.int8)
    three = np.full(shape, 3, np.float32)
    out = quantised(q=q, v=v, q_scale=scale(*shape), k_scale=scale(*shape), v_scale=three)
    assert (out == 3).all()


def test_a_new_out_is_of_eight_bits_with_a_scale():
    q = np.ones((5, 4, 64), HALF)
    v = np.full((5, 2, 64), 6, HALF)
    out, lse = varlen(q=q, v=v, out_scale=np.full((), 0.0625, np.float32), return_lse=True)
    assert out.dtype == ml_dtypes.float8_e4m3fn and (out.astype(np.float32) == 96).all()
    assert lse.dtype == np.float32
    assert explained(out_scale=scale(1))["spec"]["out_dtype"] == "float8_e4m3fn"


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
    assert explained(num_splits=1)["spec"]["storage"] == "ragged"
    pages = {"block_table": np.zeros((2, 2), np.int32), "num_splits": 1}
    call = explained(**pages)
    assert call["spec"]["storage"] == "paged"
    assert call["spec"]["cache_dtype"] is None
    assert call["path"] == "varlen"
    assert explained(np.int8, **pages)["spec"]["cache_dtype"] == "int8"
