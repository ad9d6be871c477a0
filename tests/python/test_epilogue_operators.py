"""Epilogues with values under torch.compile and torch.export: their tensors are inputs there."""

import kiln
import pytest
import torch
from kiln import jit
from torch._subclasses import FakeTensorMode

pytestmark = pytest.mark.usefixtures("emulated_torch")


SCALED = jit.Epilogue(
    "scaled",
    params={"t": "f32", "shift": "i32"},
    tensors={"s": "f32[n]"},
    value="acc * s[col] + t * shift",
)
PLAIN = jit.Epilogue("plain", value="acc * 2")
A, B = torch.randn(8, 16).half(), torch.randn(16, 24).half()
S = torch.linspace(-1, 1, 24)
TEXT = "acc * s[col] + t * shift"


def compiled(function, **options):
    return torch.compile(function, backend="aot_eager", fullgraph=True, **options)


def test_strings_with_values():
    def scale(a, b, s, t):
        given = dict(params={"t": t, "shift": 2}, tensors={"s": s})
        quantized = jit.gemm(a, b, epilogue=TEXT, out_dtype="int8", **given)
        return quantized, jit.gemm(a, b, epilogue=TEXT, **given) + 1

    traced = compiled(scale)
    scale(A, B, S, 0.5)
    before = kiln.stats()["compiles"]
    for s, t in ((S, 0.5), (2 * S, -1.5)):
        for ours, eager in zip(traced(A, B, s, t), scale(A, B, s, t)):
            assert ours.dtype == eager.dtype and torch.equal(ours, eager)
    assert kiln.stats()["compiles"] == before


def test_bound_epilogues_are_arguments_and_made_in_traced_functions():
    def scale(a, b, epilogue, s):
        out = torch.empty(8, 24, dtype=a.dtype)
        jit.gemm(a, b, epilogue=SCALED(t=0.5, shift=3, s=2 * s), out=out)
        return out + jit.gemm(a, b, epilogue=epilogue)

    traced = compiled(scale)
    for epilogue in (SCALED(t=1.0, shift=1, s=S), PLAIN, PLAIN()):
        assert torch.equal(traced(A, B, epilogue, S), scale(A, B, epilogue, S))


@pytest.mark.parametrize(
    "options, text",
    [
        (lambda s: dict(epilogue=SCALED(t=1.0, s=s)), "missing shift=; it takes t, shift, s"),
        (lambda s: dict(epilogue=SCALED(t=1.0, shift=1, s=s, x=s)), "no parameter or tensor 'x'"),
        (lambda s: dict(epilogue=SCALED(1.0)), "passed by name"),
        (lambda s: dict(epilogue=PLAIN, tensors={"s": s}), "has values of its own"),
        (lambda s: dict(tensors={"s": s}), "must be given with params or tensors"),
        (lambda s: dict(epilogue=3), "must be a string, or a jit.Epilogue"),
        (lambda s: dict(epilogue="s[col]", tensors={"s": s.double()}), "s must be float32"),
    ],
)
def test_what_a_traced_call_refuses(options, text):
    with pytest.raises(Exception, match=text):
        compiled(lambda a, s: jit.gemm(a, B, **options(s)))(A, S)


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("s", S)

    def forward(self, a):
        return jit.gemm(a, B, epilogue="acc * s[col]", tensors={"s": self.s})


@pytest.mark.parametrize("strict", [False, True])
def test_modules_are_exported(strict):
    module = Linear()
    exported = torch.export.export(module, (A,), strict=strict)
    assert any("gemm_epilogue" in str(node.target) for node in exported.graph.nodes)
    assert torch.equal(exported.module()(A), module(A))


def test_operators_by_name():
    operator = torch.ops.kiln.gemm_epilogue
    arguments = dict(bound_epilogue=SCALED._text, epilogue_values=[0.5, 2.0], epilogue_tensors=[S])
    expected = jit.gemm(A, B, epilogue=SCALED(t=0.5, shift=2, s=S))
    assert torch.equal(operator(A, B, **arguments), expected)
    torch.library.opcheck(operator.default, (A, B), arguments)
    with pytest.raises(ValueError, match="epilogue takes 2 values and 1 tensors, got 1 and 1"):
        operator(A, B, **{**arguments, "epilogue_values": [0.5]})
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = operator(mode.from_tensor(A), mode.from_tensor(B), **arguments)
        assert fake.shape == (8, 24) and fake.dtype == torch.float16
