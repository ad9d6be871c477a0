"""JAX's arrays, in and out, on the emulated device."""

import kiln
import numpy as np
import pytest
from kiln import jit

jax = pytest.importorskip("jax", reason="JAX is not installed: make build/stamps/test_packages")
jnp = pytest.importorskip("jax.numpy")


@pytest.fixture(autouse=True)
def emulated():
    in_host_memory = jax.default_device(jax.devices("cpu")[0])  # also where JAX finds a GPU
    with kiln.device("emulator:sm_90a"), in_host_memory:
        yield


def draw(*shape, dtype=jnp.bfloat16, seed=0):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def attention(q, k, v):
    weights = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones(weights.shape[-2:], bool), k.shape[1] - q.shape[1])
    weights = jax.nn.softmax(jnp.where(mask, weights, -jnp.inf))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def test_attention_returns_arrays_of_jax():
    q, k, v = (draw(2, rows, 4, 64, seed=rows) for rows in (33, 70, 70))
    out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    assert isinstance(out, jax.Array) and out.dtype == jnp.bfloat16
    assert lse.shape == (2, 4, 33) and lse.dtype == jnp.float32
    exact = attention(*(x.astype(jnp.float32) for x in (q, k, v)))
    np.testing.assert_allclose(out.astype(jnp.float32), exact, atol=2e-2)


def test_results_are_arrays_like_others():
    a, b = draw(40, 64, dtype=jnp.float16), draw(64, 24, dtype=jnp.float16, seed=1)
    products = [jit.gemm(a, b, alpha=alpha) for alpha in (1.0, 2.0)]  # no two share memory
    np.testing.assert_array_equal(2 * products[0], products[1])
    np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(products[0]), products[0] + 1)


def test_pytorch_s_form_and_arrays_beside_numpy_s():
    q = draw(1, 4, 20, 32, dtype=jnp.float16)
    mask = np.random.default_rng(0).random((20, 20)) > 0.3
    out = jit.scaled_dot_product_attention(q, q, q, mask)
    expected = jit.scaled_dot_product_attention(*[np.asarray(q)] * 3, mask)
    np.testing.assert_array_equal(out, expected)


def test_an_array_is_never_written_to():
    a = draw(16, 16, dtype=jnp.float16)
    with pytest.raises(TypeError, match=r"out is read-only \(its framework's arrays are immutable"):
        jit.gemm(a, a, out=draw(16, 16, dtype=jnp.float16))


def test_a_traced_array_has_no_memory():
    with pytest.raises(TypeError, match=r"a must be a tensor|a could not be exported|a .*Tracer"):
        jax.jit(lambda a: jit.gemm(a, a))(draw(16, 16, dtype=jnp.float16))
