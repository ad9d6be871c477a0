"""Results of NumPy arrays and CPU tensors on the emulated device."""

import threading

import kiln
import numpy as np
import pytest
import torch
from kiln import jit


def attention_reference(q, k, v, causal):
    """softmax(q k^T / sqrt(d)) v of [batch, length, heads, dim], in fp64, and the log-sum-exp."""
    q, k, v = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows, keys = logits.shape[-2:]
        logits[..., np.arange(keys)[None] > np.arange(rows)[:, None] + keys - rows] = -np.inf
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    return (weights / total @ v).transpose(0, 2, 1, 3), (top + np.log(total))[..., 0]


def random(*shape, dtype=np.float16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got, want, tolerance=2e-3):
    return np.abs(np.asarray(got, np.float64) - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_attention_on_numpy_arrays(schedule):
    q, k, v = (random(1, 40, 2, 64, seed=i) for i in range(3))
    with kiln.device("emulator:sm_90a", schedule=schedule, seed=1):
        out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    want, want_lse = attention_reference(q, k, v, causal=True)
    assert type(out) is np.ndarray and out.dtype == np.float16
    assert lse.shape == (1, 2, 40) and lse.dtype == np.float32
    assert close(out, want) and close(lse, want_lse)


def test_strided_and_reversed_views_in_place(emulator):
    store = random(1, 20, 3, 2, 64)
    q, k, v = (store[:, :, i] for i in range(3))  # one packed array
    out = np.zeros((1, 20, 2, 64), np.float16)
    assert jit.flash_attention(q, k[:, ::-1], v[:, ::-1], out=out) is out
    assert close(out, attention_reference(q, k, v, causal=False)[0])


def test_out_may_be_an_input(emulator):
    q, k, v = (random(1, 16, 1, 64, seed=i) for i in range(3))
    want = attention_reference(q, k, v, causal=False)[0]
    assert jit.flash_attention(q, k, v, out=q) is q
    assert close(q, want)


def test_gemm_on_numpy_arrays(emulator):
    a, b = random(33, 40), random(24, 40, seed=1)
    for array in (a, b):
        array.flags.writeable = False  # inputs are only read
    bias = random(24, dtype=np.float32, seed=2)
    out = jit.gemm(a, b.T, bias=bias, activation="relu", out_dtype="float32")
    want = np.maximum(a.astype(np.float64) @ b.T.astype(np.float64) + bias, 0)
    assert out.dtype == np.float32 and close(out, want)


def test_cpu_torch_tensors(emulator):
    a, b = torch.randn(16, 32).bfloat16(), torch.randn(32, 24).bfloat16()
    out = jit.gemm(a, b)
    assert out.device.type == "cpu" and out.dtype == torch.bfloat16
    assert close(out.float(), (a.double() @ b.double()).numpy(), 1e-2)
    parameter = torch.nn.Parameter(a)
    with pytest.raises(ValueError, match="no_grad"):
        jit.gemm(parameter, b)
    with torch.no_grad():
        assert torch.equal(jit.gemm(parameter, b), out)


def test_bfloat16_numpy_arrays_by_dtype_name(emulator):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = random(16, 32, dtype=np.float32).astype(ml_dtypes.bfloat16)
    out = jit.gemm(a, a.T)
    assert out.dtype == ml_dtypes.bfloat16
    wide = a.astype(np.float64)
    assert close(out.astype(np.float32), wide @ wide.T, 1e-2)


def test_variants_with_host_tensors(emulator):
    q, k, v = (random(1, 16, 1, 64, seed=i) for i in range(3))
    biased = jit.Variant("biased", tensors={"bias": "f32[kv]"}, logits="logit + bias")
    bias = np.zeros(16, np.float32)
    bias[3] = 100.0  # that key alone counts
    out = jit.flash_attention(q, k, v, variant=biased(bias=bias))
    assert close(out, np.broadcast_to(v[:, 3:4].astype(np.float64), out.shape))


def test_threads_compute_at_once():
    a = random(48, 64)
    want = a.astype(np.float64) @ a.T.astype(np.float64)
    results = []

    def work(seed):
        with kiln.device("emulator", seed=seed):
            results.append(jit.gemm(a, a.T))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(np.array_equal(result, results[0]) for result in results) and close(results[0], want)
