"""kiln.compat.flash_attn: names, refusals, and what differs from kiln.jit."""

import inspect

import kiln
import pytest
import torch
from kiln.compat import flash_attn
from kiln.compat.flash_attn import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from message_page import check
from small_tensors import half, integers

pytestmark = pytest.mark.usefixtures("emulated_torch")


def dense(len_q=5, len_k=9, heads=4):
    return half(2, len_q, heads, 64), half(2, len_k, 2, 64), half(2, len_k, 2, 64)


def near(found, expected):
    torch.testing.assert_close(found.float(), expected.float(), atol=2e-3, rtol=2e-2)


def test_positional_parameters_have_flash_attn_2s_order():
    orders = {
        flash_attn_func: "q k v dropout_p softmax_scale causal window_size softcap alibi_slopes "
        "deterministic return_attn_probs",
        flash_attn_varlen_func: "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k "
        "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic "
        "return_attn_probs block_table",
        flash_attn_with_kvcache: "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens "
        "cache_batch_idx cache_leftpad block_table softmax_scale causal window_size softcap "
        "rotary_interleaved alibi_slopes num_splits return_softmax_lse",
    }
    for function, names in orders.items():
        parameters = inspect.signature(function).parameters.values()
        assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == names.split()


def test_what_engines_look_up_by_name_is_there():
    names = {"window_size", "softcap", "s_aux", "learnable_sink", "num_splits", "q_descale"}
    for function in (flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache):
        assert names <= set(inspect.signature(function).parameters)
    assert set(flash_attn.__all__) <= set(dir(flash_attn))


def test_what_is_returned():
    q, k, v = dense()
    out = flash_attn_func(q, k, v)
    again, lse, probabilities = flash_attn_func(q, k, v, return_attn_probs=True)
    assert torch.equal(out, again) and probabilities is None
    assert lse.shape == (2, 4, 5) and lse.dtype == torch.float32
    for name in ("return_softmax_lse", "return_lse"):
        assert torch.equal(flash_attn_func(q, k, v, **{name: True})[1], lse)
    given = torch.empty_like(q)
    assert flash_attn_func(q, k, v, out=given) is given and torch.equal(given, out)


def test_odd_head_dims_and_strides_are_copied():
    q, k, v = (half(2, n, 2, 60).transpose(1, 3).contiguous().transpose(1, 3) for n in (5, 9, 9))
    assert q.stride(-1) != 1
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * 60**-0.5
    expected = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v.float())
    given = torch.empty(2, 5, 2, 60).half()
    near(flash_attn_func(q, k, v), expected)
    assert flash_attn_func(q, k, v, out=given) is given
    near(given, expected)


def test_rows_of_out_behind_the_last_sequence_stay():
    """Whatever the head dim."""
    for dim in (60, 64):
        q, k, v = (half(n, 2, dim) for n in (7, 13, 13))
        out = torch.full((7, 2, dim), 7.0).half()
        bounds = (integers(0, 3, 5), integers(0, 4, 13))
        assert flash_attn_varlen_func(q, k, v, *bounds, out=out) is out
        assert (out[5:] == 7).all()
        near(out[:5], flash_attn_varlen_func(q, k, v, *bounds)[:5])


def test_rows_without_keys():
    q, k, v = dense(len_q=9, len_k=5)
    out, lse = flash_attn_func(q, k, v, causal=True, return_lse=True)
    assert not out[:, :4].any() and (lse[..., :4] == -torch.inf).all()
    assert lse[..., 4:].isfinite().all()


def test_the_lse_has_the_sinks():
    """As flash-attn's has; Kiln's own has not."""
    q, k, v = dense()
    sinks = torch.tensor([-2.0, 0.0, 1.0, 3.0])
    out, lse = flash_attn_func(q, k, v, s_aux=sinks, return_softmax_lse=True)
    plain, plain_lse = flash_attn_func(q, k, v, return_softmax_lse=True)
    torch.testing.assert_close(lse, torch.logaddexp(plain_lse, sinks[:, None]))
    near(out, plain.float() * (plain_lse - lse).exp().transpose(1, 2)[..., None])
    assert torch.equal(flash_attn_func(q, k, v, learnable_sink=sinks), out)


def test_open_windows_have_several_spellings():
    q, k, v = dense()
    expected = flash_attn_func(q, k, v)
    for size in (None, (None, None), [-1, -1], (-7, -1)):
        assert torch.equal(flash_attn_func(q, k, v, window_size=size), expected)
    near(flash_attn_func(q, k, v, window_size=(None, 0)), flash_attn_func(q, k, v, causal=True))


def test_what_changes_nothing_is_taken():
    q, k, v = dense()
    ignored = dict(deterministic=True, pack_gqa=True, sm_margin=4, fa_version=3)
    assert torch.equal(flash_attn_func(q, k, v, **ignored), flash_attn_func(q, k, v))
    near(flash_attn_func(q, k, v, num_splits=1), flash_attn_func(q, k, v, num_splits=5))


@pytest.mark.parametrize("given, passed", [(1, 1), (0, 0), (None, 0), (7, 0)])
def test_one_split_is_passed_on_and_others_are_hints(monkeypatch, given, passed):
    seen = []
    for name in ("flash_attention", "flash_attention_varlen", "flash_attention_with_kvcache"):
        monkeypatch.setattr(kiln.jit, name, lambda *tensors, **options: seen.append(options))
    flash_attn_func(*dense(), num_splits=given)
    flash_attn_varlen_func(*packed(), num_splits=given)
    flash_attn_with_kvcache(*dense(), num_splits=given)
    assert [options.get("num_splits", 0) for options in seen] == [passed] * 3


def test_scales_of_eight_bit_keys():
    q, k, v = dense()
    scale = torch.full((2, 2), 0.5)
    stored = [(x / 0.5).to(torch.float8_e4m3fn) for x in (k, v)]
    found = flash_attn_func(q, *stored, k_descale=scale, v_descale=scale)
    near(found, flash_attn_func(q, *((x.float() * 0.5).half() for x in stored)))


def test_scales_of_eight_bit_queries():
    scale = torch.full((2, 2), 0.5)
    scales = dict(q_descale=scale, k_descale=scale, v_descale=scale)
    eight = [(x / 0.5).to(torch.float8_e4m3fn) for x in dense()]
    expected = flash_attn_func(*((x.float() * 0.5).half() for x in eight)).float()
    used = integers(*[eight[1].shape[1]] * 2)
    for found in (
        flash_attn_func(*eight, **scales),
        flash_attn_with_kvcache(*eight, cache_seqlens=used, **scales),
    ):
        assert found.dtype == torch.bfloat16
        assert (found.float() - expected).norm() < 0.05 * expected.norm()


def packed():
    starts = integers(0, 3, 7), integers(0, 4, 13)
    return half(7, 4, 64), half(13, 2, 64), half(13, 2, 64), *starts


def test_packed_sequences():
    q, k, v, starts_q, starts_k = packed()
    out, lse = flash_attn_varlen_func(q, k, v, starts_q, starts_k, causal=True, return_lse=True)
    assert lse.shape == (4, 7)
    for queries, keys in ((slice(0, 3), slice(0, 4)), (slice(3, 7), slice(4, 13))):
        alone = flash_attn_func(q[None, queries], k[None, keys], v[None, keys], causal=True)
        near(out[queries], alone[0])
    flags = integers(1, 1)
    near(flash_attn_varlen_func(q, k, v, starts_q, starts_k, dynamic_causal=flags), out)


def test_used_queries_and_keys():
    q, k, v, starts_q, starts_k = packed()
    used = dict(seqused_q=integers(2, 4), seqused_k=integers(4, 5))
    slopes = torch.rand(2, 4)
    out, lse = flash_attn_varlen_func(
        q, k, v, starts_q, starts_k, 4, 9, causal=True, alibi_slopes=slopes, return_lse=True, **used
    )
    for b, (queries, keys) in enumerate(((slice(0, 2), slice(0, 4)), (slice(3, 7), slice(4, 9)))):
        alone = flash_attn_func(
            q[None, queries], k[None, keys], v[None, keys], causal=True,
            alibi_slopes=slopes[b : b + 1],
        )  # fmt: skip
        near(out[queries], alone[0])
    assert not out[2].any() and (lse[:, 2] == -torch.inf).all()


def test_used_queries_with_rows_of_every_kind():
    """Two KV heads, as many as sequences: scales of heads are not taken for scales of sequences."""
    q, k, v, starts_q, starts_k = packed()
    stored = [x.to(torch.float8_e4m3fn) for x in (k, v)]
    scale = torch.tensor([0.5, 2.0])
    options = dict(k_descale=scale, v_descale=scale.expand(2, 2), dynamic_causal=integers(0, 1))
    bounds = (starts_q, starts_k, 4, 9)
    expected = flash_attn_varlen_func(q, *stored, *bounds, **options)
    found = flash_attn_varlen_func(q, *stored, *bounds, seqused_q=integers(3, 4), **options)
    near(found, expected)


def test_packed_tensors_are_views():
    q, k, v = dense(heads=2, len_q=9)
    near(flash_attn_kvpacked_func(q, torch.stack((k, v), 2)), flash_attn_func(q, k, v))
    qkv, starts = torch.stack((q, k, v), 2).flatten(0, 1), integers(0, 9, 18)
    found = flash_attn_varlen_qkvpacked_func(qkv, starts, 9, 0.0, None, True)
    near(found, flash_attn_func(q, k, v, causal=True).flatten(0, 1))


def test_pages_by_either_name():
    pool = half(2, 6, 4, 2, 64)
    table = integers([2, 0, 5], [1, 4, 3])
    q, lengths = half(2, 1, 4, 64), integers(9, 5)
    found = [flash_attn_with_kvcache(q, *pool, cache_seqlens=lengths, **{name: table})
             for name in ("block_table", "page_table")]  # fmt: skip
    assert torch.equal(*found)
    starts = integers(0, 1, 2)
    bounds = dict(cu_seqlens_q=starts, max_seqlen_q=1)
    lying = flash_attn_with_kvcache(
        q[:, 0], *pool, cache_seqlens=lengths, page_table=table, **bounds, return_lse=True
    )
    near(lying[0], found[0][:, 0])
    assert lying[1].shape == (4, 2)
    near(flash_attn_varlen_func(q[:, 0], *pool, starts, max_seqlen_q=1, max_seqlen_k=12,
                                seqused_k=lengths, block_table=table), found[0][:, 0])  # fmt: skip


def test_lengths_of_caches():
    q, k_cache, v_cache = dense(len_q=1)
    full = flash_attn_with_kvcache(q, k_cache, v_cache)
    near(full, flash_attn_func(q, k_cache, v_cache))
    some = flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=6)
    near(some, flash_attn_func(q, k_cache[:, :6], v_cache[:, :6]))
    k, v = half(2, 1, 2, 64), half(2, 1, 2, 64)
    out, lse = flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cache_seqlens=6, return_softmax_lse=True
    )
    assert torch.equal(k_cache[:, 6:7], k) and torch.equal(v_cache[:, 6:7], v)
    near(out, flash_attn_func(q, k_cache[:, :7], v_cache[:, :7]))
    assert lse.shape == (2, 4, 1)


def test_gradients_are_refused():
    q, k, v = dense()
    with torch.enable_grad(), pytest.raises(ValueError) as error:
        flash_attn_func(q.requires_grad_(), k, v)
    check(error.value, ValueError, "call it under torch.no_grad() or pass tensor.detach()")


def test_a_graph_without_breaks():
    q, k, v = dense()
    compiled = torch.compile(flash_attn_func, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v, causal=True), flash_attn_func(q, k, v, causal=True))
    compiled = torch.compile(
        flash_attn_with_kvcache, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for count in (3, 5, 6):
        found = compiled(q, k, v, cache_seqlens=count, window_size=(count, 0))
        assert torch.equal(
            found, flash_attn_with_kvcache(q, k, v, cache_seqlens=count, window_size=(count, 0))
        )
    q, k, v = (half(2, 5, 2, 60) for _ in range(3))
    compiled = torch.compile(flash_attn_func, fullgraph=True, dynamic=True, backend="aot_eager")
    out = torch.empty_like(q)
    assert torch.equal(compiled(q, k, v, out=out), flash_attn_func(q, k, v))
