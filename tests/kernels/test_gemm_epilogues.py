"""GEMM's epilogues with run-time scalars and tensors, and its outputs of 8 bits."""

import copy
import pickle

import kiln
import pytest
import torch
from gemm_case import GemmCase, judge, tiles
from grid import arch, on_gpu, sized, some_of
from kiln import jit
from storage import DEVICE, DTYPES, filled, place, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

SCALED = jit.Epilogue(
    "scaled", params={"t": "f32"}, tensors={"s": "f32[n]"}, value="acc * s[col] + t"
)


def call(case, expression, reference, *, out_dtype="bf16", out_storage="guarded", **values):
    """The case's product with an epilogue, against the same in float64."""
    a, b = case.inputs()
    out = place(out_storage, case.out_shape(), DTYPES[out_dtype])
    case.call(a, b, out.view, epilogue=expression, **values)
    judge(f"{case} {expression}", a, b, out, epilogue=lambda acc, *_: reference(acc))
    return out.view


# "odd" operands have no tensor maps: the portable kernels compute them on every device.
SIZES = sized(
    small=[(50, 72, 72, "plain"), (37, 67, 45, "odd")],
    full=[(257, 264, 520, "plain"), (131, 67, 45, "odd"), (8, 1032, 2048, "plain")],
)


@pytest.mark.parametrize("m,n,k,storage", SIZES)
@pytest.mark.parametrize("form", ["column", "row", "matrix", "strided", "table"])
def test_tensors_of_every_form(form, m, n, k, storage):
    case = GemmCase(m=m, n=n, k=k, storage=storage)
    out = "guarded" if storage == "plain" else "odd"
    if form == "column":
        s = randn([n], torch.float32, 5)
        call(case, "acc * s[col] + t", lambda acc: acc * s + 1.5, out_storage=out,
             params={"t": 1.5}, tensors={"s": s})  # fmt: skip
    elif form == "row":
        s = randn([m], torch.float16, 5)
        call(case, "acc * s[row]", lambda acc: acc * s[:, None], out_storage=out,
             tensors={"s": s})  # fmt: skip
    elif form == "matrix":
        d = filled("odd", randn([m, n], torch.bfloat16, 5))
        call(case, "fmaxf(acc, d[row, col])", lambda acc: torch.maximum(acc, d.to(acc.dtype)),
             out_storage=out, tensors={"d": d})  # fmt: skip
    elif form == "strided":
        d = randn([n, 2 * m], torch.float32, 5).t()[::2]
        call(case, "acc + d[row, col]", lambda acc: acc + d, out_storage=out, tensors={"d": d})
    else:
        bucket = torch.arange(m, device=DEVICE, dtype=torch.int64) % 5
        table = randn([5, 3], torch.float32, 6)
        picked = table[bucket][:, torch.arange(n, device=DEVICE) % 3]
        call(case, "acc + table[bucket[row], col % 3]", lambda acc: acc + picked,
             out_storage=out, tensors={"table": table, "bucket": bucket})  # fmt: skip


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_other_inputs_and_outputs(dtype):
    case = GemmCase(dtype=dtype, m=37, n=72, k=64)
    shift = torch.arange(72, device=DEVICE, dtype=torch.int32)
    call(case, "acc * 2 + shift[col] * step", lambda acc: acc * 2 + shift * 3,
         out_dtype="f32", params={"step": 3}, tensors={"shift": shift})  # fmt: skip


def test_an_index_outside_stands_for_the_nearest_one():
    s = randn([8], torch.float32, 5)
    nearest = s[torch.arange(72, device=DEVICE).sub(4).clamp(0, 7)]
    call(GemmCase(m=40, n=72, k=64), "acc + s[col - 4]", lambda acc: acc + nearest,
         tensors={"s": s})  # fmt: skip


def test_a_tensor_of_each_batch_entry():
    case = GemmCase(m=37, n=72, k=64, batch_a=3, batch_b=3)
    s = randn([3, 72], torch.float32, 5)
    scaled = jit.Epilogue("each", tensors={"s": "f32[batch, n]"}, value="acc * s[batch, col]")
    for given in (s, s[:1], s[:, :1]):  # a size of 1 broadcasts
        call(case, scaled(s=given), lambda acc, given=given: acc * given[:, None])


def test_extents_without_values():
    case = GemmCase(m=40, n=56, k=64)
    rows = torch.arange(40, device=DEVICE)[:, None]
    columns = torch.arange(56, device=DEVICE)
    call(case, "acc + float(row) / m - float(col) / n", lambda acc: acc + rows / 40 - columns / 56)


@pytest.mark.parametrize("config", [None, (128, 96, 64, 8, 1, 3)])
def test_a_split_tile_has_its_epilogue_once(config):
    """On Hopper by name, the CTAs of a cluster; elsewhere whoever shares K of the tile."""
    if config and arch() != "sm_90a":
        config = None
    case = GemmCase(m=20, n=72, k=4608, config=config)
    s = randn([72], torch.float32, 5)
    call(case, SCALED(t=0.25, s=s), lambda acc: acc * s + 0.25)


def test_bias_and_residual_beside_values():
    case = GemmCase(m=37, n=72, k=64)
    a, b = case.inputs()
    bias, residual = randn([72], torch.float32, 3), randn([37, 72], torch.bfloat16, 4)
    s = randn([72], torch.float32, 5)
    out = place("guarded", [37, 72], torch.bfloat16)
    given = dict(bias=bias, residual=residual, alpha=0.5)
    jit.gemm(a, b, out=out.view, epilogue="(acc + bias) * s[col] + residual", tensors={"s": s},
             **given)  # fmt: skip
    judge("beside", a, b, out, epilogue=lambda acc, bias, residual: (acc + bias) * s + residual,
          **given)  # fmt: skip


def some_tiles():
    found = tiles("bf16", arch(), out_dtype="bfloat16", layout="nt", activation="none", bias=None)
    return some_of(found, of=4)


@pytest.mark.parametrize("config", some_tiles(), ids=str)
def test_a_column_scale_with_every_tile(config):
    case = GemmCase(m=150, n=136, k=200, config=config)
    s = randn([136], torch.float32, 5)
    call(case, SCALED(t=-1.0, s=s), lambda acc: acc * s - 1.0)


def test_changed_values_compile_nothing():
    case = GemmCase(m=50, n=72, k=72)
    s = randn([72], torch.float32, 5)
    values = dict(params={"t": 1.5}, tensors={"s": s})
    call(case, "acc * s[col] + t", lambda acc: acc * s + 1.5, **values)
    other = GemmCase(m=33, n=88, k=72)
    wide = randn([88, 2], torch.float32, 7)[:, 0]
    with kiln.no_compile():
        call(case, "acc * s[col] + t", lambda acc: acc * 2 * s - 4.0, params={"t": -4.0},
             tensors={"s": 2 * s})  # fmt: skip
        call(other, "acc * s[col] + t", lambda acc: acc * wide + 0.5, tensors={"s": wide},
             params={"t": 0.5})  # fmt: skip
        a, b = case.inputs()
        with pytest.raises(kiln.CompileDisabled):
            jit.gemm(a, b, epilogue="acc * s[col] + t", params={"t": 1}, tensors={"s": s})


def test_copies_of_a_bound_epilogue():
    case = GemmCase(m=50, n=72, k=72)
    s = randn([72], torch.float32, 5)
    bound = SCALED(t=1.5, s=s)
    for one in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        call(case, one, lambda acc: acc * s + 1.5)
    assert pickle.loads(pickle.dumps(SCALED)).digest == SCALED.digest


def test_a_spec_names_the_kernel():
    case = GemmCase(m=50, n=72, k=72)
    a, b = case.inputs()
    s = randn([72], torch.float32, 5)
    found = kiln.explain("gemm", a, b, epilogue=SCALED(t=1.0, s=s))
    assert "acc * s[col] + t" in found["what"]
    spec = found["spec"]
    assert spec["epilogue"]["tensors"] == [["s", "f32[n]"]]
    assert not kiln.prewarm([spec], arch=arch())["failed"]
    kiln.preload(spec)


# ----------------------------------------------------------------------------- 8-bit outputs

BYTES = {"int8": torch.int8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
LIMITS = {"int8": 127, "e4m3": 448, "e5m2": 57344}


def rounded(x, dtype):
    """To nearest even, and what is too large to the largest number."""
    if dtype == torch.int8:
        return torch.round(x).clamp(-128, 127).to(dtype)
    limit = torch.finfo(dtype).max
    return x.clamp(-limit, limit).to(torch.float32).to(dtype)


def byte_output(storage, shape, dtype):
    """An output in a buffer of 85 around it, and a function that checks the buffer."""
    columns = shape[-1]
    width = columns + {"plain": 0, "guarded": (-columns) % 16 + 16, "odd": 1}[storage]
    buffer = torch.full([*shape[:-1], width], 85, dtype=torch.uint8, device=DEVICE)

    def check():
        assert (buffer[..., columns:] == 85).all(), "bytes beside the output were written"

    return buffer[..., :columns].view(dtype), check


def whole_numbers(case, name):
    """a and b of whole numbers, whose sums and their halves and quarters are exact in float32."""
    generator = torch.Generator(device=DEVICE).manual_seed(9)
    a, b = case.inputs()
    for x in (a, b):
        numbers = torch.randint(-4, 5, x.shape, generator=generator, device=DEVICE)
        x.copy_(numbers.to(x.dtype))
    a[0, : case.k] = {"int8": 4, "e4m3": 60, "e5m2": 512}[name]  # sums beyond the largest number
    b[: case.k, 0] = 4
    return a, b


@pytest.mark.parametrize("m,n,k,storage", SIZES)
@pytest.mark.parametrize("name", BYTES)
def test_8_bit_outputs(name, m, n, k, storage):
    case = GemmCase(m=m, n=n, k=k, storage=storage)
    a, b = whole_numbers(case, name)
    out, check = byte_output("guarded" if storage == "plain" else "odd", [m, n], BYTES[name])
    alpha = 0.25 if name == "int8" else 2.0
    jit.gemm(a, b, alpha=alpha, out=out)
    expected = rounded(alpha * (a.double() @ b.double()), BYTES[name])
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))
    assert (out.float().abs() >= LIMITS[name]).any(), "nothing saturates: a weak test"
    check()


@pytest.mark.parametrize("name", BYTES)
def test_nan_and_infinities(name):
    a, b = whole_numbers(GemmCase(m=16, n=32, k=64), name)
    a[3], a[4, 0], b[0] = torch.nan, torch.inf, b[0].abs() + 1
    out = jit.gemm(a, b, out_dtype=BYTES[name]).float()
    assert (out[3].isnan() if name != "int8" else out[3] == 0).all()
    assert (out[4] == LIMITS[name]).all()


@pytest.mark.parametrize("name", ["int8", "e4m3"])
def test_an_epilogue_scales_to_8_bits(name):
    """As a quantised layer does it: a scale for each row and one for each column."""
    case = GemmCase(m=50, n=80, k=72, batch_a=2, batch_b=2)
    a, b = case.inputs()
    rows, columns = torch.rand(2, 50, device=DEVICE) + 0.5, torch.rand(80, device=DEVICE) + 0.5
    out = jit.gemm(a, b, epilogue="acc * rows[batch, row] * columns[col]", out_dtype=BYTES[name],
                   tensors={"rows": rows, "columns": columns})  # fmt: skip
    exact = (a.double() @ b.double()) * rows[:, :, None] * columns
    spacing = 0.5 if name == "int8" else (exact.abs() * 2.0**-4).clamp(min=2.0**-10)
    assert ((out.double() - exact).abs() <= spacing * 1.001 + 1e-4).all()


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_8_bits_in_and_out(dtype):
    if arch() != "sm_90a":
        pytest.skip("8-bit inputs are for Hopper")
    case = GemmCase(dtype=dtype, m=70, n=96, k=128)
    a, b = case.inputs()
    scale_a = torch.full([], 0.5, device=DEVICE)
    bias = randn([96], torch.float32, 3)
    out = jit.gemm(a, b, scale_a=scale_a, bias=bias, out_dtype="float8_e4m3fn")
    exact = (a.double() @ b.double()) * 0.5 + bias
    spacing = (exact.abs() * 2.0**-4).clamp(min=2.0**-10)
    assert ((out.double() - exact).abs() <= spacing * 1.01 + 1e-3).all()


@pytest.mark.parametrize("gate,m", [("halves", 150), ("interleaved", 20)])
def test_gated_outputs_of_8_bits(gate, m):
    case = GemmCase(m=m, n=128, k=72)
    a, b = case.inputs()
    out = jit.gemm(a, b, activation="swiglu", gate=gate, alpha=4.0, out_dtype="int8")
    product = 4.0 * (a.double() @ b.double())
    first, second = product.chunk(2, 1) if gate == "halves" else (product[:, ::2], product[:, 1::2])
    exact = (torch.nn.functional.silu(first) * second).clamp(-128, 127)
    assert ((out.double() - exact).abs() <= 0.5 + 0.01 * exact.abs()).all()


@pytest.mark.skipif(on_gpu(), reason="an architecture that this GPU is not")
@pytest.mark.parametrize("name", BYTES)
def test_archs_without_instructions_for_8_bit_floats(name):
    case = GemmCase(m=37, n=80, k=64)
    a, b = whole_numbers(case, name)
    with kiln.device("emulator:sm_80"):
        out = jit.gemm(a, b, out_dtype=BYTES[name], epilogue="acc * 0.5 + s[col]",
                       tensors={"s": torch.zeros(80)})  # fmt: skip
    expected = rounded(0.5 * (a.double() @ b.double()), BYTES[name])
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("name", ["int8", "e4m3"])
@pytest.mark.parametrize(
    "config",
    some_of(
        tiles("bf16", arch(), out_dtype="int8", layout="nt", activation="none", bias=None), of=4
    ),
    ids=str,
)
def test_8_bits_with_every_tile(config, name):
    case = GemmCase(m=150, n=144, k=72, config=config)
    a, b = whole_numbers(case, name)
    out, check = byte_output("guarded", [150, 144], BYTES[name])
    case.call(a, b, out, alpha=0.5)
    expected = rounded(0.5 * (a.double() @ b.double()), BYTES[name])
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))
    check()
