"""The C++ that callables of jit.flex_attention become means what they mean in PyTorch."""

import kiln
import pytest
import torch
from kiln.flex.reads import reads_of
from kiln.flex.text import expression
from kiln.flex.trace import trace
from nvrtc import compiled

COUNT = 64
ELEMENTS = {
    torch.float32: "float", torch.float16: "kiln::f16", torch.uint8: "kiln::u8",
    torch.int64: "kiln::i64",
}  # fmt: skip


def expressions():
    """What PyTorch and Python mean otherwise than C++ does, as functions of scalars."""
    generator = torch.Generator().manual_seed(1)
    halves = torch.randn(64, 64, generator=generator).half()
    bytes_ = torch.randint(0, 256, (64,), dtype=torch.uint8, generator=generator)
    numbers = torch.randn(7, generator=generator)
    at = torch.randint(-7, 7, (64,), generator=generator)
    scalar, divisor, negative = torch.tensor(0.25), 7, -5

    def deep(s, q, k):
        s = torch.tanh(s)
        for _ in range(14):
            s = s * s * 0.25 + torch.where(s > 0.0, s, -s) * 0.5
        return s

    return [
        lambda s, q, k: (q - k) // 7 + (k - q) % divisor,
        lambda s, q, k: (q - k) // negative * 100 + (q - k) % negative,
        lambda s, q, k: (q - k) / 3 - 5 / (k + 1),
        lambda s, q, k: (q - k) / 8 // 0.3 + 100 * ((q - k) / 8 % 0.3),
        lambda s, q, k: (q - k) / 8 % -0.3 - 2.0 // ((q - k) / 8 + 0.0625),
        lambda s, q, k: torch.where(q % 2 == 0, s, k * 1.5) - torch.where(k > q, 1, 0.5),
        lambda s, q, k: torch.clamp(s * 4, -2.5, 3) + q.clamp(min=divisor) - k.clip(max=20),
        lambda s, q, k: halves[q, k].float() + s * halves[k][q - k] + halves[-1, k].to(s.dtype),
        lambda s, q, k: numbers[at[q]] * 2 + numbers[-2] - numbers.size(0),
        lambda s, q, k: torch.minimum(s, scalar) + max(2, divisor) * torch.maximum(scalar, s),
        lambda s, q, k: ((q & 3) | (k ^ 5)) + (q << 1) - (k >> 2) + ~q,
        lambda s, q, k: s**2 - 2.0**s + torch.pow(k + 0.5, 0.5) + q**3 - (s * s + 1) ** 0.3,
        lambda s, q, k: (q / 7).to(torch.float16).float() + (k / 7).bfloat16().float(),
        lambda s, q, k: torch.sigmoid(s) + torch.log1p(s.abs()) + torch.rsqrt(k + 1.0) + s.exp(),
        lambda s, q, k: bytes_[k] * 3 + bytes_[q] // 7,
        lambda s, q, k: ((q > k) + (k > 3)).to(torch.int32) + (q > k).float() * 2 + (q > k) * q,
        lambda s, q, k: torch.sign(q - k) + (q - k).abs() * torch.max(q, k) - torch.minimum(q, k),
        lambda s, q, k: torch.round((q - k) / 2) + 10 * ((q - k) / 4).floor() - (k / 3).ceil(),
        lambda s, q, k: torch.div(q - k, 4, rounding_mode="trunc") + torch.fmod(q - k, 4) * 100,
        lambda s, q, k: torch.where(torch.logical_xor(q > 9, k), s, -s).masked_fill(q == k, 7.0),
        lambda s, q, k: torch.rsub(s, q) + torch.add(s, k, alpha=-2) - torch.square(s).neg(),
        lambda s, q, k: deep(s, q, k),
    ]


def statement(index, function, tensors):
    """One expression of a thread, and what its names stand for."""

    def score_mod(score, b, h, q_idx, kv_idx):
        return function(score, q_idx, kv_idx)

    traced = trace(score_mod, None, reads_of(score_mod).numbers_in_code())
    lines = []
    for i, (kind, value) in enumerate(traced.tracer.params):
        lines.append(f"const {'int' if kind == 'i32' else 'float'} p{i} = {value};")
    for i, tensor in enumerate(traced.tracer.tensors):
        tensors.setdefault(id(tensor), tensor)
        place = list(tensors).index(id(tensor))
        width = tensor.shape[1] if tensor.dim() == 2 else 1
        lines.append(
            f"const auto t{i} = [&](int i, int j = 0) "
            f"{{ return kiln::load_constant(a{place} + i * {width} + j); }};"
        )
    lines.append(f"out[{index * COUNT} + row] = {expression(traced.logits)};")
    return "  { " + " ".join(lines) + " }\n"


@pytest.mark.emulated
def test_expressions_mean_what_they_mean_in_pytorch():
    functions, tensors = expressions(), {}
    body = "".join(statement(i, f, tensors) for i, f in enumerate(functions))
    pointers = [f"const {ELEMENTS[x.dtype]}* a{i}" for i, x in enumerate(tensors.values())]
    source = (
        '#include "/kiln/attention/variant.cuh"\n'
        'extern "C" __global__ void test(float* out, const float* scores, const int* keys, '
        + ", ".join(pointers)
        + ") {\n  const int row = threadIdx.x, kv = keys[row];\n"
        + "  const float logit = scores[row];\n"
        + body
        + "}\n"
    )
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(COUNT, generator=generator)
    keys = torch.randperm(COUNT, generator=generator).int()
    out = torch.full((len(functions), COUNT), torch.nan)
    ptx, _ = compiled(source, "compute_80", "PTX")
    kiln.emulate(ptx, block=COUNT, arguments=[out, scores, keys, *tensors.values()])
    rows = torch.arange(COUNT, dtype=torch.int32)
    for found, function in zip(out, functions, strict=True):
        each = zip(scores, rows, keys, strict=True)
        meant = torch.stack([function(*scalars).float() for scalars in each])
        torch.testing.assert_close(found, meant, rtol=1e-5, atol=1e-5)
