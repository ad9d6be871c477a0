"""RMS norm and layer norm: every dtype, row width, stride, option and place of the outputs."""

import dataclasses
import itertools

import kiln
import pytest
import torch
from case_group import CaseGroup
from grid import arch, sized
from kiln import jit
from norm_case import OPS, NormCase, judge, zeros
from reference import norm
from storage import DEVICE, DTYPES, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

# A warp with several rows, a row for each group of a CTA's threads, one for a CTA, for a cluster.
COLUMNS = (1, 7, 64, 128, 333, 1024, 2048, 3072, 4095, 4096, 5120, 6144, 8192, 10240, 16384, 20000)
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


def rows_for(columns):
    return sized(small=5 if columns <= 1024 else 2, full=4096 if columns <= 4096 else 600)


def width_groups():
    for op, columns in itertools.product(OPS, COLUMNS):
        case = NormCase(op, shape=(rows_for(columns), columns))
        full = dataclasses.replace(case, residual=True, sums="new")
        yield CaseGroup(f"{op}-{columns}", (case, full))


@pytest.mark.parametrize("group", list(width_groups()), ids=str)
def test_widths(group):
    group.check()


def dtype_groups():
    for op, dtype in itertools.product(OPS, DTYPES):
        case = NormCase(op, dtype, shape=(rows_for(520), 520))
        cases = [
            dataclasses.replace(case, weight=weight, bias=bias, out_dtype=out)
            for weight, bias, out in [
                ("same", "same", ""), ("", "", "f32"), ("f32", "", "f16"), ("bf16", "f32", "bf16"),
                ("f16", "bf16", "f32"), ("", "f16", ""),
            ]
        ]  # fmt: skip
        sums = dataclasses.replace(case, residual=True, sums="new", weight="f32", out_dtype="f32")
        odd = dataclasses.replace(sums, shape=(5, 333))
        wide = dataclasses.replace(case, shape=(3, 8192), out_storage="plain")
        yield CaseGroup(f"{op}-{dtype}", (*cases, sums, odd, wide))


@pytest.mark.parametrize("group", list(dtype_groups()), ids=str)
def test_dtypes(group):
    group.check()


def layout_groups():
    for op in OPS:
        flat = NormCase(op, shape=(5, 264), residual=True, sums="new")
        deep = dataclasses.replace(flat, shape=(2, 3, 4, 264))
        cases = [
            dataclasses.replace(flat, storage=storage, out_storage=out)
            for storage, out in [
                ("guarded", "plain"), ("plain", "guarded"), ("offset", "plain"), ("odd", "odd"),
                ("plain", "offset"), ("head_slice", "plain"),
            ]
        ]  # fmt: skip
        cases += [
            dataclasses.replace(deep, shape=(2, 3, 264), storage="guarded"),
            dataclasses.replace(deep, shape=(2, 3, 264), storage="guarded", out_storage="plain"),
            dataclasses.replace(deep, storage="permuted", out_storage="plain"),
            dataclasses.replace(deep, storage="permuted", out_storage="permuted"),
            dataclasses.replace(deep, storage="plain", out_storage="head_slice"),
            dataclasses.replace(deep, shape=(264,), out_storage="plain"),
            dataclasses.replace(deep, shape=(1, 1, 1, 2, 264)),
            dataclasses.replace(flat, weight_storage="offset"),
            dataclasses.replace(flat, residual_storage="guarded", sums_storage="plain"),
            dataclasses.replace(
                deep,
                storage="permuted",
                residual_storage="plain",
                out_storage="head_slice",
                sums_storage="permuted",
            ),
        ]
        yield CaseGroup(op, tuple(cases))


@pytest.mark.parametrize("group", list(layout_groups()), ids=str)
def test_strides(group):
    group.check()


def place_groups():
    """Outputs that are inputs."""
    for op in OPS:
        case = NormCase(op, shape=(4, 264), residual=True, storage="guarded")
        wide = dataclasses.replace(case, shape=(1, 65536), storage="plain")
        cases = [
            dataclasses.replace(one, out=out, sums=sums)
            for one, out, sums in [
                (case, "new", "residual"), (case, "x", "residual"), (case, "residual", "x"),
                (case, "residual", ""), (case, "x", "new"), (wide, "x", "residual"),
                (wide, "residual", "x"),
            ]
        ]  # fmt: skip
        alone = dataclasses.replace(case, residual=False, out="x")
        yield CaseGroup(op, (*cases, alone))


@pytest.mark.parametrize("group", list(place_groups()), ids=str)
def test_in_place(group):
    group.check()


def option_groups():
    for op in OPS:
        case = NormCase(op, "f16", shape=(4, 264), weight_offset=1.0, residual=True)
        cases = [dataclasses.replace(case, activation=name, out_dtype=out)
                 for name in ACTIVATIONS for out in ("", "f32")]  # fmt: skip
        cases += [
            dataclasses.replace(case, eps=eps, scale=scale, weight=weight)
            for eps, scale, weight in [(0.0, 1.0, ""), (1e-3, 1e-2, "f32"), (1e3, 8.0, "same")]
        ]
        yield CaseGroup(op, tuple(cases))


@pytest.mark.parametrize("group", list(option_groups()), ids=str)
def test_options(group):
    group.check()


def wide_groups():
    """Rows of one CTA, of a cluster, and of the CTAs of two launches."""
    for op, dtype in itertools.product(OPS, DTYPES):
        case = NormCase(op, dtype, shape=(1, 65536), out_storage="plain")
        full = dataclasses.replace(case, shape=(2, 40000), residual=True, sums="residual",
                                   activation="gelu")  # fmt: skip
        odd = dataclasses.replace(case, shape=(1, 65535))
        yield CaseGroup(f"{op}-{dtype}", (case, full, odd))


@pytest.mark.parametrize("group", list(wide_groups()), ids=str)
def test_few_wide_rows(group):
    group.check()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("columns", [40008, 65536])
def test_wide_rows_that_clusters_share(op, columns):
    """More rows than two launches take."""
    rows = sized(small=33, full=300)
    case = NormCase(op, shape=(rows, columns), residual=True, sums="new", out_storage="plain")
    assert case.explain()["config"] == "512x4 cluster 4"
    case.check()


def mean_groups():
    for dtype in ("f32", "bf16"):
        means = (1e2, 1e4) if dtype == "f32" else (100.0,)
        shapes = ((3, 264), (3, 4096), (2, 20000), (1, 65536))
        cases = [
            NormCase("layer_norm", dtype, shape=shape, mean=mean, out_storage="plain")
            for mean in means
            for shape in shapes
        ]
        in_place = dataclasses.replace(cases[-len(shapes)], out="x")
        cases += [dataclasses.replace(case, mean=-case.mean) for case in cases[:2]]
        cases.append(in_place)
        yield CaseGroup(dtype, tuple(cases))


@pytest.mark.parametrize("group", list(mean_groups()), ids=str)
def test_means_far_from_zero(group):
    group.check()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("columns", [1, 264, 4096, 20000])
def test_equal_elements(op, columns):
    """A row without a variance: layer norm gives the bias, not what rounding left of the mean."""
    x = torch.full([2, columns], 3.1415927, device=DEVICE)
    bias = randn([columns], torch.float32, 1)
    if op == "layer_norm":
        assert torch.equal(jit.layer_norm(x, None, bias), bias.expand(2, -1))
    else:
        judge(op, jit.rms_norm(x), norm(op, x))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("columns", [24, 264, 4096])
def test_what_is_not_a_number_stays_in_its_row(op, columns):
    x = randn([6, columns], torch.bfloat16, 1)
    x[1, 5], x[4, columns - 1] = float("nan"), float("inf")
    out = getattr(jit, op)(x)
    assert torch.isnan(out[1]).all()
    assert torch.isnan(out[4]).any()
    rest = [0, 2, 3, 5]
    judge(op, out[rest], norm(op, x[rest]))


@pytest.mark.parametrize("op", OPS)
def test_nothing_to_do(op):
    call = getattr(jit, op)
    for shape in [(0, 64), (3, 0), (2, 0, 8), (0,)]:
        x = zeros(*shape)
        assert call(x).shape == x.shape
        weight = zeros(shape[-1])
        assert call(x, weight, residual=x, residual_out=zeros(*shape), out=x) is x


@pytest.mark.parametrize("op", OPS)
def test_no_rows_lie_anywhere(op):
    for tokens in (2, 0):  # the heads of queries, beside those of keys and values
        queries = randn([3, tokens, 12, 64], torch.bfloat16, 1)[:, :, :4]
        out = zeros(3, tokens, 5, 64)[:, :, :4]
        assert getattr(jit, op)(queries, out=out).shape == (3, tokens, 4, 64)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("columns", [64, 333, 1024, 4096, 8192, 16384])
def test_a_row_gives_the_same_bits_in_every_batch(op, columns):
    x = randn([sized(small=5, full=1200), columns], torch.bfloat16, 1)
    weight = randn([columns], torch.bfloat16, 2)
    call = getattr(jit, op)
    many = call(x, weight)
    assert torch.equal(call(x, weight), many)
    for row in (0, 3, len(x) - 1):
        assert torch.equal(call(x[row], weight), many[row])
        assert torch.equal(call(x[row : row + 2], weight), many[row : row + 2])


@pytest.mark.parametrize("op", OPS)
def test_two_launches_repeat_their_bits(op):
    x = randn([2, 65536], torch.float16, 1)
    first = getattr(jit, op)(x)
    assert all(torch.equal(getattr(jit, op)(x), first) for _ in range(sized(small=1, full=20)))


@pytest.mark.parametrize("op", OPS)
def test_results_of_other_dtypes_and_shapes(op):
    call = getattr(jit, op)
    x = randn([2, 3, 64], torch.bfloat16, 1)
    for named, dtype in [("float16", torch.float16), (torch.float32, torch.float32)]:
        out = call(x, out_dtype=named)
        assert out.dtype == dtype and out.is_contiguous()
        judge(op, out, norm(op, x))
    assert call(x.transpose(0, 1)).shape == (3, 2, 64)


def refused(error, text, op="rms_norm", x=None, **arguments):
    with pytest.raises(error) as caught:
        getattr(jit, op)(zeros(4, 64) if x is None else x, **arguments)
    assert f"{op}: " in str(caught.value) and text in str(caught.value), caught.value


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "shapes,error,text",
    [
        (dict(weight=(63,)), ValueError, "weight must have shape [64], got [63]"),
        (dict(weight=(1, 64)), ValueError, "weight must have shape [64], got [1, 64]"),
        (dict(residual=(4, 63)), ValueError, "residual must have x's shape [4, 64], got [4, 63]"),
        (dict(residual=(64,)), ValueError, "residual must have x's shape [4, 64], got [64]"),
        (dict(out=(3, 64)), ValueError, "out must have x's shape [4, 64], got [3, 64]"),
        (dict(residual_out=(4, 64)), ValueError, "residual_out is the sum of x and residual"),
        (dict(x=(1, 65537)), ValueError, "x must have at most 65536 columns and 2^31 - 1 rows"),
        (dict(x=()), ValueError, "x must have at least one dimension"),
    ],
)
def test_shapes_that_are_refused(op, shapes, error, text):
    refused(error, text, op, **{name: zeros(*shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "arguments,error,text",
    [
        (dict(activation="swiglu"), ValueError,
         'activation must be relu, gelu, gelu_tanh or silu, got "swiglu"'),
        (dict(eps=float("nan")), ValueError, "eps must be a finite number, got nan"),
        (dict(eps=-1.0), ValueError, "eps must not be negative, got -1"),
        (dict(weight_offset=float("inf")), ValueError, "weight_offset must be a finite number"),
        (dict(out_dtype="int8"), TypeError,
         "out_dtype must be float16, bfloat16 or float32, got int8"),
        (dict(out=zeros(4, 64, dtype=torch.int32)), TypeError,
         "out must be float16, bfloat16 or float32, got int32"),
    ],
)  # fmt: skip
def test_values_that_are_refused(op, arguments, error, text):
    refused(error, text, op, **arguments)


def test_dtypes_and_strides_that_are_refused():
    refused(TypeError, "x must be float16, bfloat16 or float32, got int32",
            x=zeros(4, 64, dtype=torch.int32))  # fmt: skip
    refused(TypeError, "weight must be float16", weight=zeros(64, dtype=torch.int32))
    refused(TypeError, "bias must be", "layer_norm", bias=zeros(64, dtype=torch.int32))
    refused(ValueError, "bias must have shape [64], got [65]", "layer_norm", bias=zeros(65))
    refused(TypeError, "residual must be bfloat16 like x",
            residual=zeros(4, 64, dtype=torch.float32))  # fmt: skip
    refused(ValueError, "x must be contiguous in its last dimension", x=zeros(64, 4).t())
    rows = zeros(2, 2, 2, 2, 64).permute(3, 1, 0, 2, 4)
    refused(ValueError, "must have rows that lie in memory as one run, or as runs", x=rows)


def test_overlaps_that_are_refused():
    memory = zeros(6, 64)
    x, later = memory[:4], memory[1:5]
    refused(ValueError, "out shares memory with x", x=x, out=later)
    both = zeros(4, 64)
    refused(ValueError, "shares memory", x=x, residual=zeros(4, 64), out=both, residual_out=both)
    refused(ValueError, "shares memory", x=x, residual=zeros(4, 64), residual_out=later)
    refused(ValueError, "out shares memory with x", x=x, out=x.view(torch.float16))
    # Columns side by side are no overlap.
    halves = randn([4, 128], torch.bfloat16, 1)
    truth = norm("rms_norm", halves[:, :64])
    jit.rms_norm(halves[:, :64], out=halves[:, 64:])
    judge("halves", halves[:, 64:], truth)


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("op", OPS)
def test_other_architectures(device, op, name):
    with device.on(name):
        for shape in [(3, 264), (2, 4096), (1, 65536)]:
            NormCase(op, shape=shape, residual=True, sums="new", out_storage="plain").check()


@pytest.mark.parametrize("vector", [8, 1])
def test_no_number_of_columns_or_rows_compiles_after_prewarming(vector):
    spec = {"op": "rms_norm", "weight": "bfloat16", "vector": vector}
    report = kiln.prewarm(spec, arch())
    assert report["failed"] == [] and report["total"] > 10
    accesses = (1, 2, 15, 16, 17, 32, 33, 64, 65, 128, 200, 256, 300, 384, 512, 600, 640, 641, 768)
    accesses += (1000, 1024, 1025, 1280, 1281, 2048, 2049, 2100, 4096, 5000, 8192)
    odd = (7, 333, 4095, 16383, 16385, 40001, 65535)
    with kiln.no_compile():
        for columns in [8 * n for n in accesses] if vector == 8 else odd:
            for rows in (1, 3):
                out = jit.rms_norm(torch.ones(rows, columns, dtype=torch.bfloat16, device=DEVICE),
                                   zeros(columns), weight_offset=1.0)  # fmt: skip
                assert (out == 1).all()


@pytest.mark.parametrize("columns,launches", [(72, 1), (65536, 2)])
def test_the_specs_of_an_explanation_are_all_that_a_call_needs(columns, launches):
    case = NormCase("layer_norm", "f16", shape=(1, columns), activation="silu", weight="")
    explanation = case.explain()
    specs = [launch["spec"] for launch in explanation.get("launches", [explanation])]
    assert len(specs) == launches
    report = kiln.prewarm(specs, arch())
    assert report["failed"] == [] and report["total"] == launches
    with kiln.no_compile():
        case.check()


@pytest.mark.parametrize("op", OPS)
def test_more_rows_than_fit_the_device(op):
    """Threads that go on from row to row, whose next ones wait in shared memory."""
    rows = sized(small=8 * 132 + 9, full=10000)
    case = NormCase(op, shape=(rows, 4096), residual=True, sums="new", out_storage="plain")
    assert case.explain()["config"] == "128x4"
    case.check()
    dataclasses.replace(case, residual=False, sums="").check()  # which leaves room for two stages
