"""The C++ that callables of jit.flex_attention become means what they mean in PyTorch."""

import kiln
import pytest
import torch
import torch.nn.functional as F
from kiln.flex.reads import reads_of
from kiln.flex.text import expression
from kiln.flex.trace import trace
from nvrtc import compiled

COUNT = 64
ELEMENTS = {
    torch.float32: "float", torch.float16: "kiln::f16", torch.uint8: "kiln::u8",
    torch.int64: "kiln::i64",
}  # fmt: skip


def operators():
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
        # C++'s min and max of an int64 take no int.
        lambda s, q, k: at[q].clamp(max=3) - at[k].clamp(-2, 5) * torch.maximum(at[k], at[0]),
        lambda s, q, k: torch.minimum(torch.where(q > 3, 5, 2), at[k]) + at[q].clamp(min=1),
    ]


def formulas():
    """Functions of PyTorch that are formulas of others."""
    slope, beta, infinity = 0.125, 2.5, float("inf")
    return [
        lambda s, q, k: F.gelu(s) + F.gelu(k / 8 - 4, approximate="tanh") + F.softsign(s),
        lambda s, q, k: (
            F.softplus(k * 1.0 - 20) - F.softplus(s, beta, 1.0) + F.logsigmoid(k - 30.0)
        ),
        lambda s, q, k: F.elu(s) + F.elu(-s, slope) + F.selu(s) - F.celu(s, beta) + F.celu(-s),
        lambda s, q, k: (
            F.leaky_relu(s) + F.leaky_relu(s, slope) + F.mish(k / 4 - 8) - F.relu6(s * 9)
        ),
        lambda s, q, k: F.hardtanh(s) + F.hardtanh(s, -slope, beta) + F.tanhshrink(s) + F.relu(s),
        lambda s, q, k: F.hardsigmoid(k / 8 - 4) + F.hardswish(s * 3) + F.threshold(s, slope, beta),
        lambda s, q, k: torch.lerp(s, k * 1.0, 0.3) + torch.logaddexp(s, k / 9) + torch.frac(s * 5),
        lambda s, q, k: torch.nan_to_num(s / (k - 9), slope, 5.0, -6.0) + F.silu(s) + s.cosh(),
        lambda s, q, k: torch.logaddexp(torch.where(k > 9, -infinity, s), q - infinity),
        lambda s, q, k: (
            torch.atan2(s, k - 30.5) + torch.hypot(s, k * 1.0) + torch.copysign(s, k - 5)
        ),
        lambda s, q, k: torch.asin(s.tanh()) + torch.acos(s.tanh()) + torch.erfinv(s.tanh() * 0.9),
        lambda s, q, k: torch.acosh(k + 1.5) + torch.atanh(s.tanh() * 0.9) + torch.rad2deg(s),
    ]


def vectors():
    """Functions that compute with rows of tensors and reduce what they have to a scalar."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(64, 9, generator=generator)
    lists = torch.randint(0, 64, (64, 5), generator=generator)
    weights, single = torch.randn(9, generator=generator), torch.randn(64, 1, generator=generator)

    def row_of(row):
        first, *others = row
        return first + len(others) * others[-1]

    return [
        lambda s, q, k: s + torch.dot(rows[q], rows[k]) * 0.25 + rows[q] @ weights,
        lambda s, q, k: (rows[q] * s - weights).abs().sum() + (weights > s).sum(),
        lambda s, q, k: torch.where((lists[q] == k.unsqueeze(-1)).any(dim=-1), s, -s),
        lambda s, q, k: torch.where((lists[q] >= k // 4).all(), s, 3.0) + torch.isin(k, lists[q]),
        lambda s, q, k: (rows[k] + weights[0]).mean(-1) - rows[q].amax(0) + torch.min(rows[k] * s),
        lambda s, q, k: torch.tanh(rows[q]).max() * (rows[k].sum(-1, keepdim=True) + s).squeeze(-1),
        lambda s, q, k: (
            (rows[q] / (rows[q] * rows[q]).sum() + s).sum() + (single[k] * weights).sum()
        ),
        lambda s, q, k: weights[lists[q] % 9].sum() + (lists[k] - q).abs().amin() + row_of(rows[k]),
    ]


def stacks():
    """Functions that join scalars by torch.stack(), whose reductions are no loops."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(64, 3, generator=generator)
    numbers = torch.randn(64, generator=generator).half()
    bound = 40

    def ordered(s, q, k):
        first, *others = torch.stack([s, s + q, s - k])
        return first + others[-1] + torch.stack([q, k])[-1]

    return [
        lambda s, q, k: torch.stack([q >= k, q - k < 9, k == bound]).any() * s,
        lambda s, q, k: torch.where(torch.stack((q >= k, q % 3 == k % 3), dim=-1).all(0), s, -1.0),
        lambda s, q, k: torch.stack([q, k]).amax() + torch.stack([s, numbers[q], k / 7]).min(),
        lambda s, q, k: (torch.stack([s, numbers[k], numbers[0]]) * rows[q] * bound).sum(),
        lambda s, q, k: torch.dot(torch.stack([s, s * s, s / 3]), rows[k] + rows[q]),
        lambda s, q, k: torch.isin(q, torch.stack([k, k + 5, q * 0 + 7])) + s,
        lambda s, q, k: rows[torch.stack([q, k]), torch.stack([k % 3, q % 3])].mean(),
        lambda s, q, k: torch.stack([q, k]).float().sum(-1, keepdim=True).squeeze(0) + s,
        lambda s, q, k: (torch.stack([s]) + rows[q]).sum() + torch.stack([q > k, k > 3]).sum(),
        lambda s, q, k: ordered(s, q, k),
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
@pytest.mark.parametrize("expressions", [operators, formulas, vectors, stacks])
def test_expressions_mean_what_they_mean_in_pytorch(expressions):
    functions, tensors = expressions(), {}
    body = "".join(statement(i, f, tensors) for i, f in enumerate(functions))
    arguments = ["float* out", "const float* scores", "const int* keys"]
    arguments += [f"const {ELEMENTS[x.dtype]}* a{i}" for i, x in enumerate(tensors.values())]
    source = (
        '#include "/kiln/attention/variant.cuh"\n'
        f'extern "C" __global__ void test({", ".join(arguments)}) {{\n'
        "  const int row = threadIdx.x, kv = keys[row];\n"
        "  const float logit = scores[row];\n" + body + "}\n"
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


def test_a_stack_hides_the_tiles_that_operators_hide():
    """Its reductions are the operators themselves, whose values over intervals are known."""

    def stacked(b, h, q_idx, kv_idx):
        return torch.stack([q_idx >= kv_idx, q_idx - kv_idx < 100]).all()

    def operated(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < 100)

    first, second = (trace(None, f, reads_of(f).numbers_in_code()) for f in (stacked, operated))
    assert expression(first.mask) == expression(second.mask)
    assert first.tracer.params == second.tracer.params
