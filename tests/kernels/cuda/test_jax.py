"""JAX arrays on the GPU, in and out."""

import os

import pytest
import torch
from kiln import jit

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs memory too
jax = pytest.importorskip("jax", reason="JAX is not installed")


def on_gpu(array):
    return torch.from_dlpack(array)


@pytest.fixture(autouse=True)
def a_gpu_of_jax():
    if jax.default_backend() != "gpu":
        pytest.skip(f"JAX's backend is {jax.default_backend()}")


def draw(*shape, seed):
    return jax.random.normal(jax.random.key(seed), shape).astype(jax.numpy.bfloat16)


def test_attention_gives_arrays_of_jax_back():
    q, k, v = (draw(1, length, 4, 64, seed=length) for length in (65, 130, 130))
    # Work of JAX's own stream right before: the call must wait for it.
    q, k, v = (jax.jit(lambda x: x * 0.5 + 0.25)(x) for x in (q, k, v))
    out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    assert isinstance(out, jax.Array) and isinstance(lse, jax.Array)
    expected = jit.flash_attention(*map(on_gpu, (q, k, v)), causal=True, return_lse=True)
    assert torch.equal(on_gpu(out), expected[0])
    assert torch.equal(on_gpu(lse), expected[1])


def test_jax_goes_on_with_the_result():
    a, b = draw(300, 4096, seed=1), draw(4096, 512, seed=2)
    for _ in range(20):  # memory is freed and taken again while kernels run
        product = jit.gemm(a, b)
        doubled = jax.jit(lambda x: x + x)(product)
    assert torch.equal(on_gpu(doubled), jit.gemm(on_gpu(a), on_gpu(b)) * 2)
