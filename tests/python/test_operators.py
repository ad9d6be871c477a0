"""torch.compile, torch.export and the operators behind them, on CPU tensors and the emulated
device."""

import inspect
import subprocess
import sys

import kiln
import pytest
import torch
from kiln import jit, operators
from torch._subclasses import FakeTensorMode


@pytest.fixture(autouse=True)
def emulated():
    torch._dynamo.reset()
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        torch.manual_seed(0)
        yield


def randn(*shape, dtype=torch.float16):
    return torch.randn(shape).to(dtype)


class Block(torch.nn.Module):
    """A decoder layer whose products and attention are Kiln's."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(width, width)

    def forward(self, x):
        batch, rows, width = x.shape
        qkv = self.qkv(x).view(batch, rows, 3, self.heads, width // self.heads)
        q, k, v = qkv.unbind(2)
        x = x + jit.flash_attention(q, k, v, causal=True).reshape(batch, rows, width)
        rows_of_x = x.reshape(-1, width)
        h = jit.gemm(rows_of_x, self.up.weight.t(), bias=self.up.bias, activation="swiglu")
        return x + self.down(h).view(batch, rows, width)


@pytest.fixture
def block():
    return Block().half().eval()


def every_operation(q, w):
    rows = q.reshape(-1, 64)
    heads_first = q.transpose(1, 2)
    out = jit.flash_attention(q, q, q, causal=True)
    windowed, lse = jit.flash_attention(q, q, q, window=(3, 0), softcap=20.0, return_lse=True)
    given = torch.empty_like(q)
    given_lse = torch.empty(q.shape[0], q.shape[2], q.shape[1])
    jit.flash_attention(q, q, q, out=given, lse=given_lse)
    own_lse = jit.flash_attention(q, q, q, lse=torch.empty_like(given_lse))
    seen = torch.ones(1, 1, q.shape[1], q.shape[1], dtype=torch.bool).tril(2)
    masked = jit.flash_attention(heads_first, heads_first, heads_first, layout="bhsd", causal=True,
                                 top_left=True, attn_mask=seen)  # fmt: skip
    starts = torch.arange(q.shape[0] + 1, dtype=torch.int32) * q.shape[1]
    tokens = q.flatten(0, 1)
    packed, packed_lse = jit.flash_attention_varlen(
        tokens, tokens, tokens, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=q.shape[1],
        max_seqlen_k=q.shape[1], causal=True, return_lse=True)  # fmt: skip
    lengths = torch.full((q.shape[0],), 7, dtype=torch.int32)
    cached = jit.flash_attention_with_kvcache(
        q[:, :1], q, q, cache_seqlens=lengths, num_splits=1, out=torch.empty_like(q[:, :1])
    )
    mask = torch.ones(1, q.shape[1], dtype=torch.bool)
    pytorch_s = jit.scaled_dot_product_attention(heads_first, heads_first, heads_first, mask)
    product = jit.gemm(rows, w, activation="silu", out_dtype=torch.float32, alpha=0.5)
    named = jit.gemm(rows, w.t(), trans_b=True, out_dtype="bf16", epilogue="acc + row")
    tile = {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 9, "splits": 2}
    chosen = jit.gemm(rows, w, config=tile)
    written = torch.empty(rows.shape[0], w.shape[1], dtype=q.dtype)
    jit.gemm(rows, w, out=written)
    normed = jit.rms_norm(q, w[0, :64], residual=q, weight_offset=1.0)
    sums, layer = torch.empty_like(q), torch.empty_like(q, dtype=torch.float32)
    jit.rms_norm(q, residual=q, residual_out=sums)
    jit.layer_norm(q, w[0, :64], w[1, :64], activation="gelu", out=layer)
    merged = jit.merge_states(torch.stack([q[0], q[0]]), torch.stack([lse[0], lse[0]]))
    merged_lse = torch.empty_like(given_lse[0])
    caches = [torch.zeros(2 * len(q[0]), 1, 4, 64, dtype=q.dtype) for _ in "kv"]
    slots = torch.arange(len(q[0]))
    table = w[:8, :32].float()
    turned = jit.append_kv(q[0], q[1], *caches, slots, query=q[0], k_weight=w[0, :64],
                           positions=slots % 8, cos=table, sin=table)  # fmt: skip
    jit.append_kv(q[0], q[1], *caches, slots + len(q[0]), query=q[1], query_out=(kept := q[1] * 2))
    both = jit.merge_states(q, lse, base="2", lse=merged_lse, return_lse=True)
    return (
        out, windowed, lse, given, given_lse, own_lse, masked, packed, packed_lse, cached,
        pytorch_s, product, named, chosen, written + 1, normed, sums + 1, layer,
        jit.layer_norm(q, out_dtype="f32"), merged, *both, turned, *caches, kept,
    )  # fmt: skip


def test_every_operation_is_traced_without_a_graph_break():
    q, w = randn(2, 16, 4, 64), randn(64, 96)
    compiled = torch.compile(every_operation, fullgraph=True, backend="aot_eager")
    for ours, eager in zip(compiled(q, w), every_operation(q, w)):
        assert ours.dtype == eager.dtype and torch.equal(ours, eager)


def test_shapes_may_be_symbols():
    w = randn(64, 96)
    compiled = torch.compile(every_operation, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (16, 33):
        q = randn(2, rows, 4, 64)
        for ours, eager in zip(compiled(q, w), every_operation(q, w)):
            assert torch.equal(ours, eager)


@pytest.mark.slow
def test_the_default_compiler_runs_a_model(block):
    x = randn(1, 16, 64)
    compiled = torch.compile(block, fullgraph=True)
    torch.testing.assert_close(compiled(x), block(x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_is_exported_with_any_length(block, strict):
    rows = torch.export.Dim("rows", min=2, max=512)
    exported = torch.export.export(
        block, (randn(2, 16, 64),), dynamic_shapes={"x": {1: rows}}, strict=strict
    )
    targets = [str(node.target) for node in exported.graph.nodes]
    assert targets.count("kiln.flash_attention.default") == 1
    assert targets.count("kiln.gemm.default") == 1
    x = randn(2, 33, 64)
    assert torch.equal(exported.module()(x), block(x))


def paged_caches():
    """Of two tokens a page, keys and values of a token in one row."""
    rows = torch.zeros(8, 2, 2, 64, dtype=torch.float16)
    return {"k_cache": rows[..., :32].clone(), "v_cache": rows[..., 32:]}


def samples():
    q, k, w = randn(1, 8, 4, 32), randn(1, 12, 2, 32), randn(32, 48)
    rows, parts = randn(8, 32), randn(2, 8, 4, 32)
    options = {"causal": True, "window": [5, 0], "scale": 0.5, "sinks": torch.zeros(4)}
    first = [t.transpose(1, 2) for t in (q, k, k)]
    starts, lengths = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3, 8], [3, 5]))
    packed = {"cu_seqlens_q": starts, "max_seqlen_q": 5, "max_seqlen_k": 5}
    pages = {"cache_seqlens": lengths, "block_table": torch.tensor([[1, 0], [2, 2]]).int()}
    return [
        ("flash_attention", (q, k, k), options),
        ("flash_attention_lse", (q, k, k), {"alibi_slopes": torch.rand(4)}),
        ("flash_attention", (q, k, k), {"attn_mask": torch.rand(1, 4, 8, 12) > 0.3}),
        ("flash_attention_lse", (q, k, k), {"causal": True, "top_left": True}),
        ("flash_attention_lse", tuple(first), {"layout": "bhsd"}),
        (
            "flash_attention_out",
            (q, k, k),
            {"out": torch.zeros_like(q), "lse": torch.zeros(1, 4, 8)},
        ),
        ("flash_attention_out", (q, k, k), {"out": torch.zeros_like(q)}),
        ("flash_attention_varlen", (q[0], q[0], q[0]), {**packed, "cu_seqlens_k": starts}),
        (
            "flash_attention_varlen_lse",
            (q[0], randn(2, 6, 2, 32), randn(2, 6, 2, 16)),
            {**packed, "seqused_k": lengths, "causal": True, "window": [3, 0], "num_splits": 1},
        ),
        (
            "flash_attention_varlen_out",
            (q[0], q[0], q[0]),
            {**packed, "cu_seqlens_k": starts, "out": torch.zeros_like(q[0])},
        ),
        ("flash_attention_with_kvcache", (randn(2, 1, 4, 32), *randn(2, 3, 4, 2, 32)), pages),
        ("flash_attention_with_kvcache_lse", (randn(2, 2, 4, 32), *randn(2, 3, 4, 2, 32)), pages),
        (
            "flash_attention_with_kvcache_out",
            (randn(2, 1, 4, 32), *randn(2, 2, 6, 2, 32)),
            {
                "cache_seqlens": lengths,
                "out": torch.zeros(2, 1, 4, 32).half(),
                "lse": torch.zeros(2, 4, 1),
            },
        ),
        (
            "plan_attention_out",
            (q[0], q[0], q[0]),
            {**packed, "cu_seqlens_k": starts, "plan": torch.zeros(1 << 15).int()},
        ),
        ("scaled_dot_product_attention", tuple(first), {"enable_gqa": True}),
        (
            "scaled_dot_product_attention",
            (first[0], first[0][:, :1], first[0], torch.rand(8, 8).half()),
            {},
        ),
        ("scaled_dot_product_attention", (rows, rows, rows), {"is_causal": True}),
        ("gemm", (rows, w), {"bias": randn(48), "activation": "gelu", "residual": randn(8, 48)}),
        ("gemm", (randn(3, 32, 8), w), {"trans_a": True, "out_dtype": torch.float32}),
        ("gemm", (rows, w.t().contiguous()), {"trans_b": True, "activation": "geglu"}),
        ("gemm_out", (rows, w), {"out": torch.zeros(8, 48).half(), "scale_a": torch.rand(8, 1)}),
        ("rms_norm", (rows, randn(32)), {"residual": randn(8, 32), "weight_offset": 1.0}),
        ("rms_norm", (randn(2, 3, 64)[..., :32],), {"out_dtype": torch.float32}),
        (
            "rms_norm_out",
            (rows, randn(32)),
            {
                "residual": randn(8, 32),
                "residual_out": torch.zeros(8, 32).half(),
                "out": torch.zeros(8, 32),
            },
        ),
        ("rms_norm_out", (rows,), {"out": torch.zeros(8, 32).half()}),
        ("layer_norm", (rows, torch.rand(32), randn(32)), {"activation": "gelu"}),
        ("layer_norm_out", (rows,), {"out": torch.zeros(8, 32), "eps": 0.5}),
        ("merge_states", (parts, torch.rand(2, 4, 8)), {"sinks": torch.rand(4)}),
        ("merge_states_lse", (parts, torch.rand(2, 8, 4)), {"layout": "th", "base": "2"}),
        (
            "merge_states_out",
            (parts, torch.rand(2, 4, 8)),
            {"out": torch.zeros(8, 4, 32), "lse": torch.zeros(4, 8)},
        ),
        ("quantize", (rows,), {"group": 16, "activation": "swiglu", "scale_layout": "column"}),
        (
            "quantize_out",
            (rows,),
            {"out": torch.zeros(8, 32).to(torch.int8), "scale_out": torch.zeros(8, 1)},
        ),
        ("moe_route", (torch.rand(8, 16),), {"top_k": 3, "groups": 4, "top_groups": 2}),
        ("moe_permute", (rows, torch.randint(0, 4, (8, 2))), {"num_experts": 4}),
        ("moe_unpermute", (rows, torch.randint(-1, 8, (3, 2)).int(), torch.rand(3, 2)), {}),
        ("append_kv", (k[0], k[0], torch.arange(12)), paged_caches()),
        (
            "append_kv",
            (k[0], k[0], torch.arange(10)),
            {
                **paged_caches(),
                "query": randn(12, 4, 32),
                "query_out": torch.zeros(12, 4, 32).half(),
                "k_weight": torch.rand(32),
                "positions": torch.arange(12),
                "cos": torch.rand(12, 16),
                "sin": torch.rand(12, 16),
            },
        ),
    ]


def test_a_window_that_is_no_pair_is_named_while_pytorch_traces():
    step = torch.compile(
        lambda q: jit.flash_attention(q, q, q, window=5), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match=r"window must be a pair \(left, right\).*, got 5"):
        step(randn(1, 8, 2, 64))


@pytest.mark.parametrize("name, arguments, options", samples())
def test_pytorch_s_own_check_of_an_operator(name, arguments, options):
    operator = getattr(torch.ops.kiln, name).default
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, arguments, options, test_utils=checks)


def test_outputs_of_operators_are_laid_out_as_the_fake_ones():
    for name, arguments, options in samples():
        operator = getattr(torch.ops.kiln, name).default
        real = operator(*arguments, **options)
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = operator(*arguments, **options)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (real, fake))):
            if one is not None:
                assert (one.shape, one.dtype, one.stride()) == (
                    other.shape, other.dtype, other.stride()
                )  # fmt: skip


def test_fake_tensors_give_fake_results():
    with FakeTensorMode():
        q = torch.empty(2, 8, 4, 64, dtype=torch.bfloat16)
        out, lse = jit.flash_attention(q, q, q, return_lse=True)
        assert type(out).__name__ == "FakeTensor" and out.shape == q.shape
        assert lse.shape == (2, 4, 8) and lse.dtype == torch.float32
        with pytest.raises(TypeError, match=r"q is a .*FakeTensor, a subclass of torch.Tensor"):
            kiln.explain("flash_attention", q, q, q)


def test_fake_results_of_no_columns():
    with FakeTensorMode():
        out, scale = jit.quantize(torch.empty(3, 0), group=None)
        assert out.shape == scale.shape == (3, 0)


def test_what_requires_grad_is_refused_while_tracing(block):
    q = randn(1, 8, 4, 64).requires_grad_()
    x = randn(1, 8, 64)
    with torch.enable_grad():
        with pytest.raises(ValueError, match="flash_attention: q requires grad"):
            torch.ops.kiln.flash_attention(q, q, q)
        with pytest.raises(ValueError, match="requires grad, and Kiln computes the forward pass"):
            torch.export.export(block, (x,))
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        with pytest.raises(Exception, match=r"[Oo]bserved exception|requires grad"):
            compiled(x)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), block(x))


@pytest.mark.parametrize("name", ["flash_attention", "scaled_dot_product_attention"])
def test_a_number_that_is_no_float32_is_told_as_it_was_given(name):
    """By the operator as by the eager call; a conversion would have made it inf."""
    q = randn(1, 8, 4, 64)
    for function in (getattr(jit, name), getattr(torch.ops.kiln, name)):
        with pytest.raises(ValueError, match=r"scale must fit a float32, .*, got 1e\+300"):
            function(q, q, q, scale=1e300)
    for function in (jit.gemm, torch.ops.kiln.gemm):
        with pytest.raises(ValueError, match=r"alpha must fit a float32, .*, got -1e\+39"):
            function(q[0, :, 0], q[0, 0].t(), alpha=-1e39)


@pytest.mark.parametrize("entry", operators.TRACED)
def test_what_is_traced_has_the_signature_of_the_entry(entry):
    ours = inspect.signature(operators.TRACED[entry]).parameters.values()
    expected = inspect.signature(entry).parameters.values()
    assert [(p.name, p.kind, p.default) for p in ours] == [
        (p.name, p.kind, p.default) for p in expected
    ]


ORDER = """
import sys
{first}
{second}
assert "torch._dynamo" not in sys.modules and "kiln.operators" not in sys.modules
import importlib.util, torch
assert importlib.util.find_spec("torch._dynamo") is not None  # who only looks changes nothing
traced = torch.compile(jit.flash_attention, fullgraph=True, backend="eager")
q = torch.zeros(1, 8, 4, 64, dtype=torch.float16)
with torch.no_grad(), kiln.device("emulator"):
    assert traced(q, q, q).shape == q.shape
assert torch._dynamo.__spec__.loader is torch._dynamo.__loader__
assert type(torch._dynamo.__loader__).__module__ != "kiln._tracing"
assert not any("kiln" in type(finder).__module__ for finder in sys.meta_path)
"""


@pytest.mark.parametrize("torch_first", [True, False])
def test_eager_users_import_no_compiler_and_any_order_works(torch_first, environment):
    imports = ["import torch", "import kiln; from kiln import jit"]
    first, second = imports if torch_first else reversed(imports)
    program = ORDER.format(first=first, second=second)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
