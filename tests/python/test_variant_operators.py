"""Variants under torch.compile and torch.export: their tensors are inputs of the graph."""

import kiln
import pytest
import torch
from kiln import jit, operators, variants
from small_tensors import half
from torch._subclasses import FakeTensorMode

pytestmark = pytest.mark.usefixtures("emulated_torch")

GAIN = jit.Variant(
    "gain",
    params={"gain": "f32", "reach": "i32"},
    tensors={"bias": "f32[h]"},
    logits="gain * logit + bias * kv",
    mask="q - kv < reach",
)
EVEN = jit.Variant("even", mask="kv % 2 == 0")
Q, K = half(1, 8, 4, 64), half(1, 8, 2, 64)


def bound(gain=0.5, reach=3, bias=None):
    return GAIN(gain=gain, reach=reach, bias=torch.arange(4.0) if bias is None else bias)


def compiled(function, **options):
    return torch.compile(function, backend="aot_eager", fullgraph=True, **options)


def test_bound_variants_are_arguments_and_closures():
    first, second = bound(), bound(bias=torch.tensor([0.0, 3.0, -1.0, 1.0]))

    def attend(q, k, variant):
        return jit.flash_attention(q, k, k, variant=variant), jit.flash_attention(
            q, k, k, causal=True, variant=[EVEN, first], return_lse=True
        )

    traced = compiled(attend)
    for variant in (first, second, EVEN, [first, EVEN]):
        ours, (out, lse) = traced(Q, K, variant)
        eager, (eager_out, eager_lse) = attend(Q, K, variant)
        assert torch.equal(ours, eager)
        assert torch.equal(out, eager_out) and torch.equal(lse, eager_lse)


def test_variants_are_bound_in_traced_functions():
    def attend(q, k, bias, gain):
        out = torch.empty_like(q)
        jit.flash_attention(q, k, k, variant=GAIN(bias=2 * bias, gain=gain, reach=3), out=out)
        return out + 1

    traced = compiled(attend)
    attend(Q, K, torch.ones(4), 1.0)
    before = kiln.stats()["compiles"]
    for gain in (0.5, 0.75, 2.0):
        bias = torch.randn(4)
        assert torch.equal(traced(Q, K, bias, gain), attend(Q, K, bias, gain))
    assert kiln.stats()["compiles"] == before
    for wrong, text in (
        (lambda q: GAIN(gain=1.0, reach=3), "missing bias=; it takes gain, reach, bias"),
        (lambda q: GAIN(gain=1.0, reach=3, bias=q, x=3), "no parameter or tensor 'x'"),
        (lambda q: GAIN(1.0), "passed by name"),
    ):
        with pytest.raises(Exception, match=text):
            compiled(lambda q, w=wrong: jit.flash_attention(q, q, q, variant=w(q)))(Q)
    assert GAIN(gain=1.0, reach=1, bias=torch.ones(4)).name == "gain"


def test_every_ready_made_variant_is_made_in_traced_functions():
    """Variants whose text is made into an object of an extension work there, too."""
    q, k = half(1, 32, 4, 64), half(1, 32, 2, 64)
    weights, distances, slopes = torch.randn(4, 32), torch.randn(4, 9), torch.rand(4)
    blocks = torch.tensor([[[True, False], [True, True]]])
    ids = (torch.arange(32)[None] // 8).int()
    makers = (
        lambda: variants.t5_bias(weights),
        lambda: variants.relative_bias(distances),
        lambda: variants.block_sparse(blocks, 16),
        lambda: variants.block_sparse(blocks.byte(), 16),
        lambda: variants.documents(ids, variants.document_bounds(ids)),
        lambda: variants.documents(ids),
        lambda: variants.alibi(slopes),
        lambda: variants.prefix_lm(5),
    )
    for make in makers:

        def attend(q, k, make=make):
            return jit.flash_attention(q, k, k, variant=make())

        expected = attend(q, k)
        for dynamic in (False, True):
            torch._dynamo.reset()
            assert torch.equal(compiled(attend, dynamic=dynamic)(q, k), expected)

    def sparse(q, k, blocks, size):
        return jit.flash_attention(q, k, k, variant=variants.block_sparse(blocks, size))

    traced = compiled(sparse, dynamic=True)
    for size in (16, 32):
        assert torch.equal(traced(q, k, blocks, size), sparse(q, k, blocks, size))


def test_new_contents_of_a_tensor_are_seen():
    bias = torch.zeros(4)
    variant = bound(bias=bias)
    traced = compiled(lambda q, k: jit.flash_attention(q, k, k, variant=variant))
    before = traced(Q, K)
    bias.copy_(torch.tensor([4.0, -3.0, 2.0, -1.0]))
    after = traced(Q, K)
    assert not torch.equal(before, after)
    assert torch.equal(after, jit.flash_attention(Q, K, K, variant=variant))


def test_packed_sequences_and_caches():
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    lengths = torch.tensor([5, 8], dtype=torch.int32)
    tokens, keys, cache = half(8, 4, 64), half(8, 2, 64), half(2, 8, 2, 64)

    def attend(tokens, keys, cache, variant):
        packed = jit.flash_attention_varlen(
            tokens, keys, keys, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=5,
            max_seqlen_k=5, variant=variant, return_lse=True)  # fmt: skip
        cached = jit.flash_attention_with_kvcache(
            tokens.view(2, 4, 4, 64), cache, cache, cache_seqlens=lengths, variant=variant
        )
        return *packed, cached

    variant = bound()
    for ours, eager in zip(
        compiled(attend)(tokens, keys, cache, variant), attend(tokens, keys, cache, variant)
    ):
        assert torch.equal(ours, eager)


class Attention(torch.nn.Module):
    def __init__(self, binds):
        super().__init__()
        self.register_buffer("bias", torch.linspace(-1, 1, 4))
        self.variant = None if binds else bound(bias=self.bias)

    def forward(self, q, k):
        variant = self.variant or GAIN(gain=0.5, reach=3, bias=self.bias)
        return jit.flash_attention(q, k, k, causal=True, variant=variant)


@pytest.mark.parametrize("binds", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_modules_with_variants_are_exported(binds, strict):
    module = Attention(binds)
    exported = torch.export.export(module, (Q, K), strict=strict)
    assert any("flash_attention_variant" in str(node.target) for node in exported.graph.nodes)
    assert torch.equal(exported.module()(Q, K), module(Q, K))


def test_operators_by_name():
    ops = torch.ops.kiln
    text = f"[{GAIN._text}, {EVEN._text}]"
    bias = torch.arange(4.0)
    arguments = dict(variant=text, variant_values=[0.5, 3.0], variant_tensors=[bias])
    expected = jit.flash_attention(Q, K, K, variant=[bound(bias=bias), EVEN])
    assert torch.equal(ops.flash_attention_variant(Q, K, K, **arguments), expected)
    torch.library.opcheck(ops.flash_attention_variant.default, (Q, K, K), arguments)
    for wrong in (
        {"variant_values": [0.5]},
        {"variant_tensors": []},
        {"variant_values": [0.5, 1.5]},
        {"variant": "{"},
        {"variant_tensors": [bias, bias]},
    ):
        with pytest.raises((TypeError, ValueError)):
            ops.flash_attention_variant(Q, K, K, **{**arguments, **wrong})


def test_fake_tensors_and_what_is_refused():
    with FakeTensorMode():
        q = torch.empty(1, 8, 4, 64, dtype=torch.float16)
        assert jit.flash_attention(q, q, q, variant=EVEN).shape == q.shape
        variant = GAIN(gain=1.0, reach=1, bias=torch.ones(4))
        out, lse = jit.flash_attention(q, q, q, variant=[variant, EVEN], return_lse=True)
        assert out.shape == q.shape and lse.shape == (1, 4, 8)
        with pytest.raises(TypeError, match=r"plan_attention: variant cannot be traced"):
            jit.plan_attention(
                q, q, q, cache_seqlens=torch.ones(1, dtype=torch.int32), variant=EVEN
            )
    with pytest.raises(Exception, match=r"variant must be a jit\.Variant with its values bound"):
        compiled(lambda q: jit.flash_attention(q, q, q, variant="gain"))(Q)
    assert len(operators.VARIANT_SCHEMAS) == 9
