"""Kiln as PyTorch's FlashAttention, by PyTorch's own functions, beside its own kernels."""

import kiln
import kiln.integrations.torch as provider
import pytest
import torch
from torch.nn import attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="PyTorch before 2.11")


@pytest.fixture(autouse=True)
def registered():
    torch.manual_seed(0)
    provider.register()
    yield
    attention.restore_flash_attention_impl(_raise_warn=False)


def kernels_run(call):
    """What a call returns, and how many kernels of Kiln it launched."""
    before = kiln.stats()
    found = call()
    after = kiln.stats()
    counters = ("memory_hits", "misses")
    disk = sum(after["disk_hits"]) - sum(before["disk_hits"])
    return found, disk + sum(after[name] - before[name] for name in counters)


def randn(*shape, dtype=torch.bfloat16, **options):
    return torch.randn(shape, device="cuda", dtype=dtype, **options)


def starts(*lengths):
    return torch.tensor([0, *lengths], device="cuda", dtype=torch.int32).cumsum(0).int()


def both(call):
    """The results of PyTorch's own kernel and of Kiln's, which alone launches Kiln's kernels."""
    own, count = kernels_run(call)
    assert count == 0
    attention.activate_flash_attention_impl("KILN")
    kilns, count = kernels_run(call)
    assert count > 0
    attention.restore_flash_attention_impl()
    again, count = kernels_run(call)
    assert count == 0
    near(again, own)
    return own, kilns


def near(found, expected):
    torch.testing.assert_close(found.float(), expected.float(), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [64, 60, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_scaled_dot_product_attention(dtype, dim, causal):
    q, k, v = (randn(2, heads, 300, dim, dtype=dtype) for heads in (8, 2, 2))

    def call():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return sdpa(q, k, v, is_causal=causal, enable_gqa=True)

    own, kilns = both(call)
    with sdpa_kernel(SDPBackend.MATH):
        expected = sdpa(*(x.float() for x in (q, k, v)), is_causal=causal, enable_gqa=True)
    near(kilns, expected)
    near(kilns, own)
    assert kilns.stride() == own.stride()


def test_tensors_that_are_views():
    q, k, v = randn(2, 300, 3, 4, 64).unbind(2)

    def call():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return sdpa(*(x.transpose(1, 2) for x in (q, k, v)))

    near(*both(call))


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (40, 0)])
def test_varlen_attn(window):
    lens_q, lens_k = (5, 130, 1), (70, 130, 300)
    q, k, v = randn(sum(lens_q), 4, 64), *randn(2, sum(lens_k), 4, 64)

    def call():
        return varlen.varlen_attn(
            q, k, v, starts(*lens_q), starts(*lens_k), max(lens_q), max(lens_k), window_size=window
        )

    near(*both(call))
    attention.activate_flash_attention_impl("KILN")
    out, lse = varlen.varlen_attn(
        q, k, v, starts(*lens_q), starts(*lens_k), max(lens_q), max(lens_k), window_size=window,
        return_aux=varlen.AuxRequest(lse=True),
    )  # fmt: skip
    assert out.shape == q.shape and lse.shape == (4, sum(lens_q))


def gradients(call, *tensors):
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    out = call(*leaves)
    out.backward(torch.ones_like(out))
    return [out.detach(), *(x.grad for x in leaves)]


def of_sdpa(q, k, v, dropout_p=0.0):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return sdpa(q, k, v, dropout_p=dropout_p, is_causal=True)


def of_varlen(q, k, v):
    packed = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    ends = starts(*(q.shape[2],) * q.shape[0])
    return varlen.varlen_attn(*packed, ends, ends, q.shape[2], q.shape[2], window_size=(-1, 0))


@pytest.mark.parametrize("call", [of_sdpa, of_varlen])
def test_gradients_are_the_previous_kernels(call):
    tensors = randn(3, 2, 4, 200, 64)
    own = gradients(call, *tensors)
    attention.activate_flash_attention_impl("KILN")
    found, count = kernels_run(lambda: gradients(call, *tensors))
    assert count == 0
    for one, other in zip(found, own):
        near(one, other)


def test_dropout_is_the_previous_kernels():
    attention.activate_flash_attention_impl("KILN")
    _, count = kernels_run(lambda: of_sdpa(*randn(3, 2, 4, 200, 64), dropout_p=0.5))
    assert count == 0


def test_its_backward_pass_takes_kilns_results():
    """Where a compiler or context parallelism calls the operators below autograd, inputs do not
    say that a backward pass will follow."""
    q, k, v = randn(3, 2, 4, 200, 64)
    own = gradients(of_sdpa, q, k, v)
    attention.activate_flash_attention_impl("KILN")
    operators = torch.ops.aten
    out, lse, cum_q, cum_k, max_q, max_k, seed, unused, _ = (
        operators._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
    )
    near(out, own[0])
    found = operators._scaled_dot_product_flash_attention_backward(
        torch.ones_like(out), q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, True, seed, unused
    )
    for one, other in zip(found, own[1:]):
        near(one, other)


def test_a_captured_graph():
    q, k, v = randn(3, 1, 4, 300, 64)
    attention.activate_flash_attention_impl("KILN")
    expected = of_sdpa(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = of_sdpa(q, k, v)
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)


def test_the_default_compiler():
    pytest.importorskip("triton", reason="PyTorch's compiler needs Triton")
    q, k, v = randn(3, 1, 4, 300, 64)
    attention.activate_flash_attention_impl("KILN")
    compiled = torch.compile(lambda q, k, v: of_sdpa(q * 2, k, v) + 1, fullgraph=True)
    with torch.no_grad():
        found, count = kernels_run(lambda: compiled(q, k, v))
    assert count > 0
    near(found, of_sdpa(q * 2, k, v) + 1)
