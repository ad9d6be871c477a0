"""What is refused on a real device, in one sentence, and what is not."""

import pytest
import torch
from attention_case import AttentionCase
from gemm_case import GemmCase
from kiln import jit
from storage import DEVICE


@pytest.fixture
def qkv():
    return AttentionCase(len_q=64, len_kv=64).inputs()


def test_grad_mode_with_a_leaf_that_requires_grad_is_refused(qkv):
    q, k, v = qkv
    q.requires_grad_(True)
    with pytest.raises((ValueError, RuntimeError), match="no_grad"):
        jit.flash_attention(q, k, v)
    a = torch.nn.Parameter(torch.ones(8, 8, dtype=torch.float16, device=DEVICE))
    with pytest.raises((ValueError, RuntimeError), match="no_grad"):
        jit.gemm(a, a.detach())


def test_parameters_work_without_grad(qkv):
    q, k, v = qkv
    expected = jit.flash_attention(q, k, v)
    parameters = [torch.nn.Parameter(x) for x in qkv]
    with torch.no_grad():
        assert torch.equal(jit.flash_attention(*parameters), expected)
    with torch.inference_mode():
        assert torch.equal(jit.flash_attention(*parameters), expected)


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("convert", [torch.Tensor.cpu, lambda x: x.float().cpu().numpy()])
def test_host_tensors_beside_device_ones_are_refused(qkv, position, convert):
    qkv[position] = convert(qkv[position])
    with pytest.raises(TypeError) as caught:
        jit.flash_attention(*qkv)
    assert "GPU" in str(caught.value) or "cuda" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int32])
def test_dtypes_that_attention_lacks_are_refused(qkv, dtype):
    with pytest.raises(TypeError, match="bfloat16"):
        jit.flash_attention(*(x.to(dtype) for x in qkv))


def test_mixed_dtypes_are_refused(qkv):
    q, k, v = qkv
    with pytest.raises(TypeError):
        jit.flash_attention(q, k.half(), v)


def test_float32_gemm_names_the_precision():
    a, b = GemmCase(dtype="f32").inputs()
    with pytest.raises(TypeError, match="tf32"):
        jit.gemm(a, b)


BAD_ATTENTION = {
    "window": (dict(window=(-2, 0)), "window"),
    "window-kind": (dict(window=(1, 2, 3)), "window"),
    "layout": (dict(layout="sbhd"), "layout"),
    "softcap": (dict(softcap=-1.0), "softcap"),
    "scale": (dict(scale=float("nan")), "scale"),
    "sinks": (dict(sinks=torch.zeros(3)), "sinks"),
}


@pytest.mark.parametrize("name", BAD_ATTENTION)
def test_bad_attention_options_name_themselves(qkv, name):
    options, word = BAD_ATTENTION[name]
    options = {
        key: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for key, x in options.items()
    }
    with pytest.raises((ValueError, TypeError), match=word):
        jit.flash_attention(*qkv, **options)


def test_bad_shapes_are_refused(qkv):
    q, k, v = qkv
    for bad in [
        (q[0], k, v),
        (q, k[:, :10], v),
        (q, k, v[..., ::2]),
        (q[..., :60], k[..., :60], v),
        (torch.cat([q, q, q[:, :, :1]], 2), torch.cat([k, k], 2), torch.cat([v, v], 2)),
    ]:
        with pytest.raises(ValueError):
            jit.flash_attention(*bad)


def test_bad_outputs_are_refused(qkv):
    q, k, v = qkv
    for out in [q[:, :10].clone(), q.float(), torch.empty_like(q, device="cpu")]:
        with pytest.raises((ValueError, TypeError), match="out"):
            jit.flash_attention(q, k, v, out=out)
    with pytest.raises((ValueError, TypeError), match="lse"):
        jit.flash_attention(q, k, v, lse=torch.empty(1, 2, 63, device=DEVICE))


BAD_GEMM = {
    "activation": (dict(activation="tanh"), "activation"),
    "precision": (dict(precision="fp8"), "precision"),
    "accumulator": (dict(accumulator="float16"), "accumulator"),
    "out_dtype": (dict(out_dtype="int16"), "out_dtype"),
    "config": (dict(config={"block_m": 1}), "config"),
}


@pytest.mark.parametrize("name", BAD_GEMM)
def test_bad_gemm_options_name_themselves(name):
    a, b = GemmCase().inputs()
    options, word = BAD_GEMM[name]
    with pytest.raises((ValueError, TypeError), match=word):
        jit.gemm(a, b, **options)


def test_gemm_shapes_that_do_not_fit_are_refused():
    a, b = GemmCase(m=8, n=16, k=32).inputs()
    for bad in [(a, b.mT), (a[0], b), (a, b[:, ::2].contiguous()[::2]), (a[:, ::2], b[::2])]:
        with pytest.raises(ValueError):
            jit.gemm(*bad)
