"""PyTorch's operators behind jit.flash_attention_varlen and jit.flash_attention_with_kvcache."""

import pytest
import torch
from kiln import jit
from message_page import check
from small_tensors import half
from torch._subclasses import FakeTensorMode

pytestmark = pytest.mark.usefixtures("emulated_torch")


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
    ("flash_attention_with_kvcache", cached(plan=torch.zeros(64, dtype=torch.int32)), ValueError,
     "words for this call, got 64; make it by jit.plan_attention with the same arguments"),
    ("plan_attention", packed(cache_seqlens=torch.zeros(2).int()), ValueError,
     "cache_seqlens must not be given for calls of flash_attention_varlen, whose q this is"),
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


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
def test_an_operator_takes_a_tree(dtype):
    """One without branches, which is a causal mask."""
    arguments = packed()
    words = torch.tensor([1, 3, 1, 3, 7]).to(dtype)
    found = torch.ops.kiln.flash_attention_varlen(**arguments, tree_mask=words)
    expected = torch.ops.kiln.flash_attention_varlen(**arguments, causal=True)
    torch.testing.assert_close(found, expected)


def test_an_operator_takes_a_part_of_the_keys():
    arguments = cached(q=half(2, 3, 4, 64))
    context = dict(cp_world=1, cp_rank=0, cp_interleave=4)
    found = torch.ops.kiln.flash_attention_with_kvcache(**arguments, **context, causal=True)
    expected = torch.ops.kiln.flash_attention_with_kvcache(**arguments, causal=True)
    assert torch.equal(found, expected)
    context.update(cp_world=2, cp_seqused_k_total=torch.tensor([7, 14], dtype=torch.int32))
    found = torch.ops.kiln.flash_attention_with_kvcache(**arguments, **context, causal=True)
    expected = jit.flash_attention_with_kvcache(**arguments, **context, causal=True)
    assert torch.equal(found, expected)


def test_an_operator_quantises_its_result():
    arguments = packed(out_scale=torch.tensor(0.25))
    found = torch.ops.kiln.flash_attention_varlen(**arguments)
    assert found.dtype == torch.float8_e4m3fn
    expected = torch.ops.kiln.flash_attention_varlen(**{**arguments, "out_scale": None})
    torch.testing.assert_close(found.float() * 0.25, expected.float(), atol=0.01, rtol=0.07)
    compiled = torch.compile(jit.flash_attention_varlen, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(**arguments).float(), found.float())


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


def test_a_plan_counts_no_new_keys():
    new = half(2, 1, 2, 64)
    with pytest.raises(ValueError) as error:
        jit.flash_attention_with_kvcache(
            **cached(), k_new=new, v_new=new, plan=torch.zeros(1 << 15, dtype=torch.int32)
        )
    check(error.value, ValueError, "plan must not be given with k_new: append with jit.append_kv")


def test_an_operator_takes_a_plan():
    """Which another has made, in a compiled step too."""

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, k_cache, v_cache, cache_seqlens):
        words = dict(cache_seqlens=cache_seqlens, causal=True)
        plan = jit.plan_attention(q, k_cache, v_cache, **words)
        return jit.flash_attention_with_kvcache(q, k_cache, v_cache, plan=plan, **words), plan

    torch._dynamo.reset()
    arguments = cached(q=half(2, 3, 4, 64))
    found, plan = step(**arguments)
    expected = jit.flash_attention_with_kvcache(**arguments, causal=True)
    assert torch.equal(found, expected)
    longer = packed(q=half(5000, 64, 8), k=half(9, 32, 8), v=half(9, 32, 8))
    longer["cu_seqlens_k"] = torch.tensor([0, 0, 9], dtype=torch.int32)
    for given in ({**arguments, "k": arguments["k_cache"], "v": arguments["v_cache"]}, longer):
        words = {name: x for name, x in given.items() if not name.endswith("_cache")}
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = torch.ops.kiln.plan_attention(**words)
        assert fake.shape == torch.ops.kiln.plan_attention(**words).shape
        assert fake.dtype == plan.dtype == torch.int32


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


def test_flags_of_requests_are_refused_where_pytorch_traces():
    """All else works there."""
    arguments = cached()
    flags, new = torch.ones(2, dtype=torch.int32), half(2, 1, 2, 64)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {name: mode.from_tensor(tensor) for name, tensor in arguments.items()}
        entries, new = mode.from_tensor(flags), mode.from_tensor(new)
        assert jit.flash_attention_with_kvcache(**fake, cache_batch_idx=entries).shape[0] == 2
        out, lse = jit.flash_attention_with_kvcache(**fake, k_new=new, v_new=new, return_lse=True)
        assert out.shape == (2, 1, 4, 64) and lse.shape == (2, 4, 1)
        with pytest.raises(TypeError) as error:
            jit.flash_attention_with_kvcache(**fake, causal=entries)
        check(error.value, TypeError, "outside of torch.compile")


CAPPED = jit.Variant("capped", params={"cap": "f32"}, logits="cap * tanh(logit / cap)")


@pytest.mark.parametrize("variant", [None, CAPPED(cap=2.0)], ids=["plain", "variant"])
@pytest.mark.parametrize("results", ["out", "lse", "into"])
def test_a_compiled_step_appends_new_keys(variant, results):
    """It writes to the caches and returns what the eager call does."""
    torch._dynamo.reset()
    angles = torch.randn(16, 32)
    lengths = torch.tensor([3, 6], dtype=torch.int32)
    arguments = cached(q=half(2, 2, 4, 64), k_cache=half(2, 12, 2, 64), v_cache=half(2, 12, 2, 64),
                       cache_seqlens=lengths, k_new=half(2, 2, 2, 64), v_new=half(2, 2, 2, 64),
                       rotary_cos=angles.cos(), rotary_sin=angles.sin())  # fmt: skip

    def step(given):
        words = {"causal": True, "rotary_interleaved": False, "variant": variant}
        if results == "into":
            out, lse = torch.empty_like(given["q"]), given["q"].new_empty(2, 4, 2).float()
            jit.flash_attention_with_kvcache(**given, **words, out=out, lse=lse, return_lse=True)
            return out, lse
        return jit.flash_attention_with_kvcache(**given, **words, return_lse=results == "lse")

    def run(call):
        given = {name: x.clone() for name, x in arguments.items()}
        found = call(given)
        return [*(found if isinstance(found, tuple) else (found,)), given["k_cache"],
                given["v_cache"]]  # fmt: skip

    found = run(torch.compile(step, fullgraph=True, backend="aot_eager"))
    expected = run(step)
    assert not torch.equal(expected[-1], arguments["v_cache"])
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)


def test_an_operator_refuses_half_of_what_it_appends():
    with pytest.raises(ValueError) as error:
        torch.ops.kiln.flash_attention_with_kvcache_append(**cached(), k_new=half(2, 1, 2, 64))
    check(error.value, ValueError, "goes with v_new: give both, or none")


def test_results_of_8_bit_queries_are_bfloat16():
    """Computed, and as a compiler is told."""

    def bytes_of(arguments):
        return {name: x.to(torch.float8_e5m2) if getattr(x, "dtype", None) == torch.half else x
                for name, x in arguments.items()}  # fmt: skip

    dense = {"q": half(1, 3, 4, 64), "k": half(1, 5, 2, 64), "v": half(1, 5, 2, 64)}
    for name, given in (("flash_attention", dense), ("flash_attention_varlen", packed()),
                        ("flash_attention_with_kvcache", cached())):  # fmt: skip
        operator, given = getattr(torch.ops.kiln, name), bytes_of(given)
        assert operator(**given).dtype == torch.bfloat16
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = {n: mode.from_tensor(x) if torch.is_tensor(x) else x for n, x in given.items()}
            assert operator(**fake).dtype == torch.bfloat16
