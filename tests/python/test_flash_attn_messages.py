"""Messages of kiln.compat.flash_attn about what it refuses."""

import numpy
import pytest
import torch
from kiln.compat.flash_attn import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from message_page import check
from small_tensors import half, integers

pytestmark = pytest.mark.usefixtures("emulated_torch")


def dense():
    return half(2, 5, 4, 64), half(2, 9, 2, 64), half(2, 9, 2, 64)


def packed():
    starts = integers(0, 3, 7), integers(0, 4, 13)
    return half(7, 4, 64), half(13, 2, 64), half(13, 2, 64), *starts


def with_sinks(**names):
    return flash_attn_func(*dense(), **{name: torch.zeros(4) for name in names})


REFUSED = [
    (lambda: flash_attn_func(*dense(), 0.1), "dropout_p is not among what Kiln computes here"),
    (lambda: flash_attn_func(*dense(), attention_chunk=64), "attention_chunk is not among"),
    (lambda: flash_attn_func(*dense(), qv=half(2, 5, 4, 64)), "qv is not among what Kiln computes "
     "here, got a tensor; leave it out, or call flash-attn for it"),
    (lambda: flash_attn_varlen_func(*packed(), 4, 9, 0.2), "got 0.2; leave it out"),
    (lambda: flash_attn_varlen_func(*packed(), q_v=half(1)), "q_v is not among"),
    (lambda: flash_attn_with_kvcache(*dense(), rotary_seqlens=integers(1)), "rotary_seqlens is"),
    (lambda: flash_attn_with_kvcache(half(2, 4, 64), *dense()[1:], *dense()[1:], cache_seqlens=1,
                                     cu_seqlens_q=integers(0, 1, 2)),
     "flash_attn_with_kvcache with cu_seqlens_q: k is not among what Kiln computes here"),
    (lambda: with_sinks(s_aux=1, learnable_sink=1), "s_aux and learnable_sink are names of one "
     "argument; give only one of them"),
    (lambda: flash_attn_varlen_func(*packed(), block_table=integers([0]), page_table=integers([0])),
     "block_table and page_table are names of one argument"),
    (lambda: flash_attn_func(*dense(), return_attn_probs=True, return_lse=True),
     "return_attn_probs and return_softmax_lse ask for different results"),
    (lambda: flash_attn_with_kvcache(*dense(), *dense()[1:]), "cache_seqlens is needed with k and"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_refusals(call, text):
    with pytest.raises(ValueError) as error:
        call()
    check(error.value, ValueError, text)


def of_dims(function, q, k=64, v=64, **options):
    """A call with head dims of its own."""
    dims = (q, k, v)
    if function is flash_attn_varlen_func:
        lengths = (3, 5, 5)
        starts = integers(0, 3), integers(0, 5)
        return function(*(half(n, 2, d) for n, d in zip(lengths, dims)), *starts, **options)
    return function(*(half(1, n, 2, d) for n, d in zip((3, 5, 5), dims)), **options)


def cached(**options):
    """A call with a cache of 8 keys, or with pages for 12."""
    shape = (2, 4, 2, 64) if "block_table" in options else (1, 8, 2, 64)
    return flash_attn_with_kvcache(half(1, 1, 2, 64), half(*shape), half(*shape), **options)


def used(seqused_q, **starts):
    bounds = {"cu_seqlens_q": integers(0, 3, 7), "cu_seqlens_k": integers(0, 4, 13), **starts}
    return flash_attn_varlen_func(*packed()[:3], **bounds, seqused_q=seqused_q)


NEW = dict(k=half(1, 3, 2, 64), v=half(1, 3, 2, 64))
MISFITS = [
    (lambda: of_dims(flash_attn_func, 60), ValueError, "k must have the batch and head dim of q, "
     "which is [1, 3, 2, 60]; it is [1, 5, 2, 64]"),
    (lambda: of_dims(flash_attn_func, 64, 60, 60), ValueError, "the batch and head dim of q"),
    (lambda: of_dims(flash_attn_func, 60, num_splits=1), ValueError, "the batch and head dim of q"),
    (lambda: of_dims(flash_attn_varlen_func, 60), ValueError, "k must have the head dim of q,"),
    (lambda: of_dims(flash_attn_with_kvcache, 60), ValueError, "k_cache must have the head dim of"),
    (lambda: of_dims(flash_attn_func, 0, 0, 60), ValueError, "a multiple of 8 up to 256"),
    (lambda: of_dims(flash_attn_func, 60, 60, out=torch.empty(5, 1, 3, 2, 64)), ValueError,
     "out must have 3 or 4 dimensions like q, got [5, 1, 3, 2, 64]"),
    (lambda: of_dims(flash_attn_func, 60, 60, 60, out=half(1, 3, 1, 60)), ValueError,
     "out must have shape [1, 3, 2, 60], got [1, 3, 1, 60]"),
    (lambda: of_dims(flash_attn_func, 60, 60, 60, out=torch.empty(1, 3, 2, 60)), TypeError,
     "out must be float16 like q, got float32"),
    (lambda: cached(cache_seqlens=1000), ValueError, "cache_seqlens must be 0 to 8 in a cache that "
     "has room for 8 keys of a sequence, 0 of which are for k, got 1000"),
    (lambda: cached(cache_seqlens=-1), ValueError, "for k, got -1"),
    (lambda: cached(cache_seqlens=9, block_table=integers([1, 0])), ValueError, "must be 0 to 8 i"),
    (lambda: cached(cache_seqlens=7, **NEW), ValueError, "0 to 5 in a cache that has room for 8 k"),
    (lambda: cached(cache_seqlens=True), TypeError, "cache_seqlens must be a number of keys or an "
     "int32 tensor [batch], got True"),
    (lambda: cached(cache_seqlens=3.0), TypeError, "int32 tensor [batch], got 3.0"),
    (lambda: cached(cache_seqlens=3, k=NEW["k"]), ValueError,
     "k and v, the new keys and values, go together: give both, or none"),
    (lambda: cached(v=NEW["v"]), ValueError, "k and v, the new keys and values, go together"),
    (lambda: cached(block_table=[[0, 1]]), TypeError, "block_table must be a torch.Tensor"),
    (lambda: flash_attn_qkvpacked_func(half(1, 3, 4, 2, 64)), ValueError,
     "qkv must have shape [batch, length, 3, heads, head_dim], got [1, 3, 4, 2, 64]"),
    (lambda: flash_attn_kvpacked_func(half(1, 3, 2, 64), half(1, 3, 1, 2, 64)), ValueError,
     "kv must have shape [batch, length, 2, heads, head_dim], got [1, 3, 1, 2, 64]"),
    (lambda: flash_attn_varlen_qkvpacked_func(half(3, 2, 2, 64), integers(0, 3), 3), ValueError,
     "qkv must have shape [tokens, 3, heads, head_dim], got [3, 2, 2, 64]"),
    (lambda: flash_attn_varlen_kvpacked_func(half(3, 2, 64), half(3, 2, 64), integers(0, 3),
                                             integers(0, 3)), ValueError,
     "kv must have 4 dimensions [tokens, 2, heads, head_dim], got [3, 2, 64]"),
    (lambda: flash_attn_func(*(x.numpy() for x in dense())), TypeError,
     "q must be a torch.Tensor, got ndarray; torch.as_tensor() makes one of an array or a list"),
    (lambda: flash_attn_func(half(3, 2, 64), *dense()[1:]), ValueError, "q must have 4 dimensions"),
    (lambda: used([2, 4]), TypeError, "seqused_q must be a torch.Tensor, got list"),
    (lambda: used(integers(2)), ValueError, "seqused_q must have shape [2], got [1]"),
    (lambda: used(integers([2, 4])), ValueError, "seqused_q must have 1 dimension [batch], got [1"),
    (lambda: used(torch.tensor([2, 4])), TypeError, "seqused_q must be int32, got int64; co"),
    (lambda: used(integers(2, 4), cu_seqlens_q=[0, 3, 7]), TypeError, "cu_seqlens_q must be"),
    (lambda: used(integers(2, 4), cu_seqlens_k=integers(0, 4)), ValueError,
     "cu_seqlens_k must have shape [3], got [2]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), MISFITS, ids=[text for _, _, text in MISFITS])
def test_misfits(call, kind, text):
    with pytest.raises(kind) as error:
        call()
    check(error.value, kind, text)


def test_a_number_of_keys_may_fill_the_cache():
    for count in (0, 8, numpy.int64(8)):
        assert cached(cache_seqlens=count).isfinite().all()
    assert cached(cache_seqlens=5, **NEW).isfinite().all()


WINDOWS = [8, (8,), (1, 2, 3), (2.7, 0), ("a", 0), (True, 0)]


@pytest.mark.parametrize("size", WINDOWS, ids=str)
def test_a_window_that_is_no_pair(size):
    with pytest.raises(TypeError) as error:
        flash_attn_func(*dense(), window_size=size)
    check(error.value, TypeError, "window_size must be a pair (left, right) of integers, -1 or No")
    assert str(error.value).endswith(f", got {size}")
