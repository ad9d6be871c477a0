"""Calls of kiln.jit inside transforms of torch.func, beside modes that look at PyTorch's operators,
and with symbolic numbers, on CPU tensors and the emulated device."""

import subprocess
import sys

import kiln
import pytest
import torch
from kiln import jit
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(autouse=True)
def emulated():
    torch._dynamo.reset()
    with kiln.device("emulator:sm_90a"):
        torch.manual_seed(0)
        yield


def randn(*shape):
    return torch.randn(shape).half()


A, B = randn(5, 64), randn(64, 24)


def total(x):
    return jit.gemm(x, B).float().sum()


def mean_square(x):
    y = jit.gemm(x * 2, B).float()
    return (y * y).mean()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("function", [total, mean_square])
@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp"])
def test_derivatives_are_refused(transform, function, compiled):
    def call(x):
        if transform == "grad":
            return torch.func.grad(function)(x)
        if transform == "vjp":
            return torch.func.vjp(function, x)[0]
        return torch.func.jvp(function, (x,), (x,))

    call = torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call
    # Dynamo wraps what is raised while it traces.
    with pytest.raises(Exception, match="Kiln computes the forward pass only"):
        call(A)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_what_a_gradient_does_not_ask_for_is_computed(compiled):
    """A frozen part of a model, whose result is data for the part that learns."""
    frozen = jit.gemm(A, B).float()

    def loss(weight):
        return (jit.gemm(A, B).float() * weight).sum()

    def frozen_part(weight):
        with torch.no_grad():
            rows = jit.gemm(weight.half(), B)
        return (rows.float() * weight[:, :24]).sum()

    call = torch.func.grad(loss)
    call = torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call
    assert torch.equal(call(torch.ones(5, 24)), frozen)
    if not compiled:
        assert torch.func.grad(frozen_part)(A.float()).shape == A.shape


def test_vmap_calls_the_operator():
    batch = randn(3, 5, 64)
    out = torch.func.vmap(lambda x: jit.gemm(x, B))(batch)
    assert torch.equal(out, jit.gemm(batch, B.expand(3, 64, 24)))


def test_make_fx_records_calls():
    graph = make_fx(lambda a, b: jit.gemm(a, b))(A, B)
    assert "kiln.gemm" in graph.code
    assert torch.equal(graph(A * 2, B), jit.gemm(A * 2, B))


FIRST_CALL = """
import kiln, torch
from kiln import jit
from torch.fx.experimental.proxy_tensor import make_fx

a, b = torch.ones(5, 64).half(), torch.ones(64, 24).half()
with kiln.device("emulator:sm_90a"):
    print(make_fx(lambda x, y: jit.gemm(x, y))(a, b).code)
"""


def test_a_graph_of_the_first_call_of_a_process_has_its_operator_alone(environment):
    """Kiln finds out at the first tensor how PyTorch's negative bit is read."""
    code = subprocess.check_output([sys.executable, "-c", FIRST_CALL], env=environment, text=True)
    assert "kiln.gemm" in code
    assert "aten" not in code


@pytest.mark.parametrize("first_row", [0, 1])
def test_functionalize_calls_the_operator(first_row):
    call = torch.func.functionalize(lambda x: jit.gemm(x[first_row:], B))
    assert torch.equal(call(A), jit.gemm(A[first_row:], B))


def test_modes_see_operators():
    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names.append(str(function))
            return function(*args, **(kwargs or {}))

    q = randn(1, 5, 2, 64)
    softer = jit.Variant("softer", params={"c": "f32"}, logits="logit * c")(c=0.5)
    wanted = jit.flash_attention(q, q, q), jit.flash_attention(q, q, q, variant=softer)
    with Seen() as outer, Seen() as inner:
        made = jit.flash_attention(q, q, q), jit.flash_attention(q, q, q, variant=softer)
        kiln.explain("flash_attention", q, q, q)
    assert all(torch.equal(a, b) for a, b in zip(made, wanted, strict=True))
    operators = ["kiln.flash_attention.default", "kiln.flash_attention_variant.default"]
    for mode in (outer, inner):
        assert [name for name in mode.names if name.startswith("kiln")] == operators


class Windowed(torch.nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, 64)
        codes, scales = jit.quantize(rows, group=x.shape[1])
        return jit.flash_attention(x, x, x, window=(x.shape[1] // 2, 0)), codes, scales


@pytest.mark.parametrize("strict", [False, True])
def test_symbolic_numbers_stay_symbols(strict):
    model = Windowed()
    lengths = {"x": {1: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(
        model, (randn(1, 6, 2, 64),), dynamic_shapes=lengths, strict=strict
    )
    for length in (6, 9):
        x = randn(1, length, 2, 64)
        for made, wanted in zip(program.module()(x), model(x), strict=True):
            assert torch.equal(made.float(), wanted.float())


class CausalIfLong(torch.nn.Module):
    def forward(self, x):
        return jit.flash_attention(x, x, x, causal=x.shape[1] > 4)


def test_symbolic_flags_reach_the_operator():
    model = CausalIfLong()
    lengths = {"x": {1: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(
        model, (randn(1, 6, 2, 64),), dynamic_shapes=lengths, strict=False
    )
    x = randn(1, 9, 2, 64)
    assert torch.equal(program.module()(x), model(x))


@pytest.mark.parametrize("value", ["n", "c"])
def test_values_of_variants_stay_symbols(value):
    near = jit.Variant("near", params={"n": "i32", "c": "f32"}, logits="logit * c", mask="kv < n")

    def attend(x):
        values = {"n": 3, "c": 0.5, value: x.shape[1] - 1 if value == "n" else 1 / x.shape[1]}
        return jit.flash_attention(x, x, x, variant=near(**values))

    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend=graphs)
    for length in (5, 6, 9):
        x = randn(1, length, 2, 64)
        assert torch.equal(compiled(x), attend(x))
    assert graphs.frame_count == 1


class Scaled(torch.nn.Module):
    def forward(self, x):
        return jit.gemm(x, B, epilogue="acc * t", params={"t": x.shape[0]})


@pytest.mark.parametrize("strict", [False, True])
def test_values_of_epilogues_stay_symbols(strict):
    lengths = {"x": {0: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(Scaled(), (A,), dynamic_shapes=lengths, strict=strict)
    x = randn(9, 64)
    assert torch.equal(program.module()(x), Scaled()(x))


CUTS = torch.tensor([0, 2, 5], dtype=torch.int32)
SOFTER = jit.Variant("softer", params={"c": "f32"}, logits="logit * c")(c=0.5)


def heads_first(out, **options):
    q = torch.arange(2 * 5 * 4 * 64).reshape(2, 5, 4, 64).sin().half()
    jit.flash_attention(q, q, q, out=out[:1].view(2, 4, 8, 64)[:, :, :5].transpose(1, 2), **options)


def packed(out):
    """The last two rows belong to no sequence and stay as they are."""
    q = torch.arange(7 * 4 * 64).reshape(7, 4, 64).sin().half()
    rows = out.view(-1, 8, 64)[:7, :4]
    lengths = {"max_seqlen_q": 3, "max_seqlen_k": 3}
    jit.flash_attention_varlen(q, q, q, cu_seqlens_q=CUTS, cu_seqlens_k=CUTS, **lengths, out=rows)


WRITERS = {
    "attention": heads_first,
    "variant": lambda out: heads_first(out, variant=SOFTER),
    "varlen": packed,
    "gemm": lambda out: jit.gemm(A, B, out=out[0].view(-1, 64)[:5, 8:32]),
    "epilogue": lambda out: jit.gemm(
        A, B, epilogue="acc * t", params={"t": 2.0}, out=out[0].view(-1, 64)[:5, 8:32]
    ),
    "norm": lambda out: jit.rms_norm(A, None, out=out[0].view(-1, 128)[:5, :64]),
    "quantize": lambda out: jit.quantize(
        A, group=32, out=out.view(torch.int8).view(-1, 128)[:5, :64], scale_out=torch.empty(5, 2)
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_results_with_gaps_are_written_in_compiled_functions(writer):
    write = torch.compile(WRITERS[writer], fullgraph=True, backend="aot_eager")
    wanted, made = (torch.full((2, 4096), 7.0).half() for _ in range(2))
    WRITERS[writer](wanted)
    write(made)
    assert torch.equal(made.view(torch.int16), wanted.view(torch.int16))
    assert (wanted != 7).any()
