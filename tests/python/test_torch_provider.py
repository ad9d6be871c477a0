"""kiln.integrations.torch: PyTorch's registry, and its operators' CUDA kernels, which this calls
with CPU tensors that the emulated device computes."""

import inspect

import kiln
import kiln.integrations.torch as provider
import pytest
import torch
from message_page import check
from torch.nn import attention
from torch.nn.attention import varlen

CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
FORWARD = torch.ops.aten._flash_attention_forward
SDPA = torch.ops.aten._scaled_dot_product_flash_attention


def has_kernels():
    return [torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA")
            for name in provider._KERNELS if provider._exists(name)]  # fmt: skip


def needs(found, what):
    if not found:
        pytest.skip(f"PyTorch {torch.__version__} has no {what}")


class Previous:
    """Stands for PyTorch's own kernels, which a build for CPUs has not."""

    def __init__(self):
        self.calls = []
        self.library = torch.library.Library("aten", "IMPL", "CUDA")
        self.library.impl("_flash_attention_forward", self.forward, "CUDA")
        self.library.impl("_scaled_dot_product_flash_attention", self.sdpa, "CUDA")

    def forward(self, query, *args, **kwargs):
        self.calls.append(("forward", args, kwargs))
        return tuple(query.new_empty(0) for _ in range(5))

    def sdpa(self, query, key, value, *flags, **kwargs):
        self.calls.append(("sdpa", flags, kwargs))
        with torch._C._AutoDispatchBelowADInplaceOrView():
            views = (x.transpose(1, 2) for x in (query, key, value))
            run(FORWARD.default, *views, None, None, 5, 9, 0.0, False, False)
        return (*(query.new_empty(0) for _ in range(4)), 5, 9, *(query.new_empty(0),) * 3)


@pytest.fixture
def previous():
    kernels = Previous()
    yield kernels
    attention.restore_flash_attention_impl(_raise_warn=False)
    kernels.library._destroy()


@pytest.fixture
def active(previous):
    provider.register()
    attention.activate_flash_attention_impl("KILN")
    with kiln.device("emulator:sm_80"):
        torch.manual_seed(0)
        yield previous


def run(operator, *args, **kwargs):
    """What PyTorch does with CUDA tensors once it is below autograd."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return operator.redispatch(CUDA, *args, **kwargs)


def heads_first(len_q=5, len_k=9):
    sizes = ((4, len_q), (2, len_k), (2, len_k))
    return [torch.randn(2, heads, length, 64).half() for heads, length in sizes]


def lengths_first():
    return [x.transpose(1, 2) for x in heads_first()]


def textbook(q, k, v, **options):
    tensors = (x.float() for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True, **options)


def near(found, expected):
    torch.testing.assert_close(found.float(), expected.float(), atol=2e-3, rtol=2e-2)


def test_register_changes_nothing_but_the_list():
    before = has_kernels()
    provider.register()
    provider.register()
    assert "KILN" in attention.list_flash_attention_impls()
    assert attention.current_flash_attention_impl() is None
    assert has_kernels() == before


def test_restore_leaves_nothing():
    before = has_kernels()
    provider.register()
    for _ in range(2):
        attention.activate_flash_attention_impl("KILN")
        assert attention.current_flash_attention_impl() == "KILN"
        assert all(has_kernels())
        attention.restore_flash_attention_impl()
        assert attention.current_flash_attention_impl() is None
        assert has_kernels() == before


def test_a_pytorch_without_the_registry(monkeypatch):
    monkeypatch.delattr(torch.nn.attention, "register_flash_attention_impl")
    with pytest.raises(RuntimeError) as error:
        provider.register()
    check(error.value, RuntimeError, "install PyTorch 2.11 or later, or call jit.scaled_dot")


def test_results_are_those_of_the_schema(active):
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in heads_first())
    assert not q.is_contiguous()
    out, lse, no_q, no_k, max_q, max_k, seed, unused, debug = run(SDPA.default, q, k, v)
    near(out, textbook(q, k, v))
    assert out.stride() == torch.empty_like(q).stride()
    assert lse.shape == (2, 4, 5) and lse.dtype == torch.float32
    assert (no_q, no_k, max_q, max_k) == (None, None, 5, 9)
    assert seed.dtype == unused.dtype == torch.uint64
    assert seed.shape == (2,) and unused.shape == () and debug.numel() == 0
    dense = [x.transpose(1, 2) for x in (q, k, v)]
    same, same_lse, *_ = run(FORWARD.default, *dense, None, None, 5, 9, 0.0, False, False)
    assert torch.equal(same.transpose(1, 2), out) and torch.equal(same_lse, lse)
    assert not active.calls


def test_options_of_the_forward_operator(active):
    q, k, v = lengths_first()
    flags = (None, None, 5, 9, 0.0, True, False)
    out, lse, *_ = run(FORWARD.default, q, k, v, *flags, scale=0.5, window_size_left=3)
    expected, expected_lse = kiln.jit.flash_attention(
        q, k, v, causal=True, scale=0.5, window=(3, -1), return_lse=True
    )
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    used = torch.tensor([4, 9], dtype=torch.int32)
    fewer = run(FORWARD.default, q, k, v, *flags, seqused_k=used, num_splits=1)[0]
    alone = kiln.jit.flash_attention(q[:1], k[:1, :4], v[:1, :4], causal=True)
    near(fewer[:1], alone)


def test_the_operator_that_writes(active):
    needs(provider._exists("_flash_attention_forward_no_dropout_inplace"), "such operator")
    q, k, v = lengths_first()
    flags = (None, None, 5, 9, 0.0, True, False)
    into = torch.ops.aten._flash_attention_forward_no_dropout_inplace.default
    given = torch.empty_like(q.contiguous())
    torch.testing.assert_close(run(into, given, q, k, v, *flags), run(
        FORWARD.default, q, k, v, *flags)[1])  # fmt: skip
    near(given, run(FORWARD.default, q, k, v, *flags)[0])


def test_scales_of_eight_bit_keys(active):
    needs(provider._exists("_flash_attention_forward.quantized"), "operators with scales")
    q, k, v = heads_first()
    scale = torch.full((2, 2), 0.5)
    stored = [(x / 0.5).to(torch.float8_e4m3fn) for x in (k, v)]
    out = run(SDPA.quantized, q, *stored, None, scale, scale)[0]
    near(out, textbook(q, *(x.float() * 0.5 for x in stored)))
    flags = (None, None, 5, 9, 0.0, False, False)
    views = [x.transpose(1, 2) for x in (q, *stored)]
    same = run(FORWARD.quantized, *views, *flags, None, scale, scale)[0]
    near(same.transpose(1, 2), out)
    query = (q / 0.25).to(torch.float8_e4m3fn)
    out = run(SDPA.quantized, query, *stored, scale / 2, scale, scale)[0]
    assert out.dtype == torch.bfloat16
    expected = textbook(query.float() * 0.25, *(x.float() * 0.5 for x in stored))
    assert (out.float() - expected.float()).norm() < 0.05 * expected.float().norm()


@pytest.fixture
def on_cpu():
    """Sends the forward operator of CPU tensors, which has no kernel of its own, to CUDA's."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl("_flash_attention_forward", lambda *a, **o: run(FORWARD.default, *a, **o), "CPU")
    yield
    library._destroy()


def in_pages(rows, pages):
    """Rows, [len, heads, dim], in those pages of 4 of a pool of 6."""
    pool = torch.zeros(6, 4, *rows.shape[1:]).half()
    for page, part in zip(pages, rows.split(4)):
        pool[page, : len(part)] = part
    return pool


def test_packed_sequences_and_pages_of_varlen_attn(active, on_cpu):
    needs("block_table" in inspect.signature(varlen.varlen_attn).parameters, "pages")
    q, k, v = torch.randn(7, 4, 64).half(), *torch.randn(2, 13, 2, 64).half()
    starts_q, starts_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3, 7], [0, 4, 13]))
    options = dict(window_size=(-1, 0), enable_gqa=True)
    out, lse = varlen.varlen_attn(
        q, k, v, starts_q, starts_k, 4, 9, return_aux=varlen.AuxRequest(lse=True), **options
    )
    assert lse.shape == (4, 7)
    expected, expected_lse = kiln.jit.flash_attention_varlen(
        q, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_q=4, max_seqlen_k=9,
        causal=True, return_lse=True,
    )  # fmt: skip
    near(out, expected)
    near(lse, expected_lse)
    pool = [in_pages(x[:4], [5]) + in_pages(x[4:], [2, 0, 4]) for x in (k, v)]
    same = varlen.varlen_attn(
        q, *pool, starts_q, None, 4, 12, seqused_k=torch.tensor([4, 9], dtype=torch.int32),
        block_table=torch.tensor([[5, 0, 0], [2, 0, 4]], dtype=torch.int32), **options,
    )  # fmt: skip
    near(same, out)
    assert not active.calls


def test_varlen_attn_with_gradients_is_the_previous_kernels(active, on_cpu):
    """Its forward pass runs with grad mode off, where the inputs alone tell."""
    q = torch.randn(7, 2, 64).half().requires_grad_()
    starts = torch.tensor([0, 3, 7], dtype=torch.int32)
    varlen.varlen_attn(q, q, q, starts, starts, 4, 4)
    assert len(active.calls) == 1


def with_grad(q, k, v):
    return [q.detach().requires_grad_(), k, v]


def with_odd_heads(q, k, v):
    return [x[..., :60] for x in (q, k, v)]


def as_float(q, k, v):
    return [x.float() for x in (q, k, v)]


NOT_OURS = {
    "requires grad": (with_grad, 0.0, {}),
    "dropout_p is 0.1": (lambda *x: x, 0.1, {}),
    "query is torch.float32": (as_float, 0.0, {}),
    "the head dim is 60": (with_odd_heads, 0.0, {}),
    "alibi_slopes are torch.float16": (lambda *x: x, 0.0, dict(alibi_slopes=torch.ones(4).half())),
    "block_table is given": (lambda *x: x, 0.0, dict(block_table=torch.zeros(2, 1).int())),
}


@pytest.mark.parametrize("reason", NOT_OURS)
def test_the_previous_kernel_computes_the_rest(active, reason):
    change, dropout_p, options = NOT_OURS[reason]
    tensors = change(*lengths_first())
    run(FORWARD.default, *tensors, None, None, 5, 9, dropout_p, False, False, **options)
    [(name, args, kwargs)] = active.calls
    assert name == "forward" and kwargs == options
    assert args[2:] == (None, None, 5, 9, dropout_p, False, False)


def test_what_the_previous_kernel_calls_is_its_own(active):
    """PyTorch's kernel of the second operator calls the first with views, which Kiln would take."""
    run(SDPA.default, *with_grad(*heads_first()), scale=0.25)
    assert [name for name, *_ in active.calls] == ["sdpa", "forward"]
    assert active.calls[0][2] == {"scale": 0.25}
    run(SDPA.default, *heads_first())
    assert len(active.calls) == 2


def test_without_a_previous_kernel_the_reason_is_said(active, monkeypatch):
    def no_kernel(*args):
        raise RuntimeError("no kernel")  # as of a build for CPUs

    monkeypatch.setattr(torch.library, "get_kernel", no_kernel)
    attention.activate_flash_attention_impl("KILN")
    q, k, v = lengths_first()
    for reason, tensors in (("an input requires grad", with_grad(q, k, v)),
                            ("the head dim is 60", with_odd_heads(q, k, v))):  # fmt: skip
        with pytest.raises(RuntimeError) as error:
            run(FORWARD.default, *tensors, None, None, 5, 9, 0.0, False, False)
        check(error.value, RuntimeError, f"aten::{FORWARD.__name__}: {reason}, which Kiln does not")


def test_after_restore_kiln_is_not_called(active):
    attention.restore_flash_attention_impl()
    run(FORWARD.default, *lengths_first(), None, None, 5, 9, 0.0, False, False)
    assert len(active.calls) == 1
