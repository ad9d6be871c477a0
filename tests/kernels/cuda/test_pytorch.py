"""PyTorch's form of attention and PyTorch's compilers, on CUDA tensors."""

import pytest
import torch
from compare import check_rows
from kiln import jit, operators


@pytest.fixture(autouse=True)
def no_grad():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def randn(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda").to(dtype)


def check(q, k, v, mask=None, **options):
    out = jit.scaled_dot_product_attention(q, k, v, mask, **options)

    def textbook(dtype):  # every step rounded to dtype
        groups = q.shape[1] // k.shape[1]
        x, keys, values = (t.to(dtype) for t in (q, k, v))
        keys, values = (t.repeat_interleave(groups, 1) for t in (keys, values))
        logits = x @ keys.mT * q.shape[-1] ** -0.5
        hidden = torch.zeros(logits.shape[-2:], dtype=torch.bool, device="cuda")
        if options.get("is_causal"):
            hidden = torch.ones_like(hidden).triu(1)
        elif mask is not None and mask.dtype == torch.bool:
            hidden = ~mask
        elif mask is not None:
            logits = logits + mask.to(dtype)
        weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
        return torch.nan_to_num(weights) @ values  # a row without visible keys gives zeros

    check_rows(out, textbook(torch.float64), textbook(q.dtype), what=f"{tuple(q.shape)}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("len_q, len_kv", [(1, 700), (130, 130), (300, 77), (77, 300)])
def test_masks_of_every_kind(dtype, dim, len_q, len_kv):
    q, k, v = (randn(2, 4, length, dim, dtype=dtype) for length in (len_q, len_kv, len_kv))
    visible = torch.rand(len_q, len_kv, device="cuda") > 0.3
    visible[len_q // 2] = False  # a row of zeros
    check(q, k, v, visible)
    check(q, k, v, torch.rand(2, 1, 1, len_kv, device="cuda") > 0.5)  # padding
    check(q, k, v, randn(1, 4, len_q, len_kv, dtype=dtype))
    check(
        q, k, v, torch.randn(2, 4, len_q, len_kv, device="cuda").masked_fill(~visible, -torch.inf)
    )
    check(q, k, v, is_causal=True)
    check(q, k[:, :2], v[:, :2], visible, enable_gqa=True)


def test_an_expanded_mask_of_32k_by_32k_is_read_in_place():
    q, k, v = (randn(1, 1, 32 * 1024, 64) for _ in range(3))
    mask = torch.ones(1, 1, dtype=torch.bool, device="cuda").expand(32 * 1024, 32 * 1024)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = jit.scaled_dot_product_attention(q, k, v, mask)
    assert torch.cuda.max_memory_allocated() - before < 2**28
    expected = jit.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(out.float(), expected.float(), rtol=2e-2, atol=1e-3)


def layer(q, w):
    out = jit.flash_attention(q, q, q, causal=True)
    heads_first = q.transpose(1, 2)
    same = jit.scaled_dot_product_attention(heads_first, heads_first, heads_first, is_causal=True)
    both = (out + same.transpose(1, 2)).reshape(-1, w.shape[0])
    return jit.gemm(both, w, activation="gelu").relu()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_default_compiler_and_its_graphs(mode):
    pytest.importorskip("triton", reason="PyTorch's compiler needs Triton")
    q, w = randn(2, 100, 4, 64), randn(256, 320)
    expected = layer(q, w)
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for _ in range(4):  # the first calls warm up and capture
        torch.testing.assert_close(compiled(q, w), expected, rtol=2e-2, atol=2e-2)


def test_exported_programs_run_for_any_length():
    class Layer(torch.nn.Module):
        def forward(self, q, w):
            return layer(q, w)

    q, w = randn(2, 100, 4, 64), randn(256, 320)
    rows = torch.export.Dim("rows", min=2, max=4096)
    exported = torch.export.export(Layer(), (q, w), dynamic_shapes=({1: rows}, None)).module()
    other = randn(2, 333, 4, 64)
    for x in (q, other):
        torch.testing.assert_close(exported(x, w), layer(x, w), rtol=0, atol=0)


def test_operators_give_what_the_entries_give_on_the_current_stream():
    """Captured: work on another stream than the graph's would not be in it."""
    if operators.NATIVE:
        assert operators.NATIVE == ("CPU", "CUDA")
    q, mask = randn(2, 100, 4, 64), torch.rand(100, 100, device="cuda") > 0.3
    few, long = randn(1, 1, 8, 128), randn(1, 4000, 8, 128)  # split: with a workspace
    a, b = randn(20, 4608), randn(4608, 72)
    first = q.transpose(1, 2)

    def both():
        ours = torch.ops.kiln
        yield ours.flash_attention(q, q, q, causal=True), jit.flash_attention(q, q, q, causal=True)
        yield ours.flash_attention(few, long, long), jit.flash_attention(few, long, long)
        yield (
            ours.scaled_dot_product_attention(first, first, first, mask),
            jit.scaled_dot_product_attention(first, first, first, mask),
        )
        yield ours.gemm(a, b), jit.gemm(a, b)
        out, lse = torch.empty_like(q), torch.empty(2, 4, 100, device="cuda")
        ours.flash_attention_out(q, q, q, out=out, lse=lse)
        yield from zip((out, lse), jit.flash_attention(q, q, q, return_lse=True))

    for one, other in both():
        torch.testing.assert_close(one, other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = list(both())
    for x in (q, long, a):
        x.copy_(torch.randn_like(x))
    for one, other in captured:
        one.fill_(float("nan"))
        other.zero_()
    graph.replay()
    for one, other in captured:
        torch.testing.assert_close(one, other)


def test_operators_refuse_tensors_of_two_devices():
    q = randn(1, 16, 4, 64)
    with pytest.raises(TypeError, match="k is in host memory but q is on cuda:0"):
        torch.ops.kiln.flash_attention(q, q.cpu(), q)
    if torch.cuda.device_count() > 1:
        with pytest.raises(ValueError, match="v is on cuda:1 but q is on cuda:0"):
            torch.ops.kiln.flash_attention(q, q, q.to("cuda:1"))
        other = q.to("cuda:1")  # which is not the current one
        out = torch.ops.kiln.flash_attention(other, other, other)
        assert out.device == other.device
        assert torch.equal(out.to(q.device), torch.ops.kiln.flash_attention(q, q, q))
