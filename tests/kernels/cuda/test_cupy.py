"""CuPy arrays in and out, on CuPy's current stream."""

import pytest
import torch
from attention_case import AttentionCase
from kiln import jit

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def qkv():
    return AttentionCase(dtype="f16", len_q=65, len_kv=130, causal=True).inputs()


def test_attention_gives_cupy_arrays_back(qkv):
    expected, expected_lse = jit.flash_attention(*qkv, causal=True, return_lse=True)
    arrays = [cupy.asarray(x) for x in qkv]
    out, lse = jit.flash_attention(*arrays, causal=True, return_lse=True)
    assert isinstance(out, cupy.ndarray) and isinstance(lse, cupy.ndarray)
    cupy.cuda.get_current_stream().synchronize()
    assert torch.equal(torch.as_tensor(out, device="cuda"), expected)
    assert torch.equal(torch.as_tensor(lse, device="cuda"), expected_lse)


def test_a_given_cupy_output_is_used(qkv):
    arrays = [cupy.asarray(x) for x in qkv]
    out = cupy.full(arrays[0].shape, cupy.nan, dtype=cupy.float16)
    jit.flash_attention(*arrays, causal=True, out=out)
    torch.cuda.synchronize()
    assert torch.equal(torch.as_tensor(out, device="cuda"), jit.flash_attention(*qkv, causal=True))


def test_cupys_stream_is_used(qkv):
    arrays = [cupy.asarray(x) for x in qkv]
    expected = jit.flash_attention(*qkv, causal=True)
    source = arrays[0].copy()
    arrays[0].fill(0)
    torch.cuda.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        arrays[0][...] = source
        out = jit.flash_attention(*arrays, causal=True)
        stream.synchronize()
    assert torch.equal(torch.as_tensor(out, device="cuda"), expected)


def test_gemm_takes_cupy_strides():
    generator = torch.Generator(device="cuda").manual_seed(1)
    a = torch.randn(70, 33, device="cuda", generator=generator).half()
    b = torch.randn(45, 33, device="cuda", generator=generator).half()
    out = jit.gemm(cupy.asarray(a), cupy.asarray(b).T)
    assert isinstance(out, cupy.ndarray) and out.dtype == cupy.float16
    cupy.cuda.get_current_stream().synchronize()
    assert torch.equal(torch.as_tensor(out, device="cuda"), jit.gemm(a, b.mT))
