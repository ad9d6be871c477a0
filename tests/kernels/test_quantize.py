"""Quantising activations: dtypes, groups, rows of every width, gates, counts and strides."""

import dataclasses
import math

import kiln
import pytest
import torch
from case_group import CaseGroup
from grid import arch, sized
from kiln import jit
from quantize_case import GATES, OUT_DTYPES, QuantizeCase, textbook
from storage import DEVICE, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

ROWS = sized(small=5, full=700)


def groups():
    for out_dtype in OUT_DTYPES:
        yield CaseGroup(
            out_dtype,
            tuple(
                QuantizeCase((ROWS, columns), out_dtype=out_dtype, group=group, spread=3.0)
                for columns, group in [(256, 128), (384, 64), (512, 32), (200, 128), (8, 128)]
            ),
        )


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_groups(group):
    group.check()


@pytest.mark.parametrize("columns", [520, 1032, 2048, 2056, 4104, 6152, 8192, 8200, 16384, 17000])
def test_a_scale_for_each_row(columns):
    case = QuantizeCase((3, columns), group=None)
    case.check()
    if columns == 17000:
        dataclasses.replace(case, activation="swiglu").check()


@pytest.mark.parametrize("dtype,columns,tile", [
    ("bf16", 14336, "256x2 cluster 4"), ("bf16", 28672, "256x2 cluster 8"),
    ("f32", 24000, "256x2 cluster 8"), ("f16", 60000, "256x4 cluster 8"),
    ("bf16", 17002, "256x1 kept"), ("bf16", 17001, "512x4 in turns"),
    ("bf16", 65544, "512x4 in turns"),
])  # fmt: skip
def test_few_rows_with_wide_gates(dtype, columns, tile):
    """A cluster shares a row where its registers have room for it."""
    case = QuantizeCase((2, columns), dtype, group=None, activation="swiglu")
    case.check()
    assert case.explain()["config"] == tile


@pytest.mark.parametrize("rows,dtype,columns,tile", [
    (20, "bf16", 28672, "512x4 cluster 2"), (20, "f16", 60000, "512x8 cluster 2"),
    (40, "bf16", 28672, "256x1 kept"), (40, "f16", 29568, "1024x1 kept"),
    (40, "f32", 24000, "1024x1 kept"), (40, "bf16", 60000, "512x4 in turns"),
])  # fmt: skip
def test_wide_gates(rows, dtype, columns, tile):
    """28672 columns with gates fill half of a multiprocessor's shared memory, 57344 all of it.
    Counts leave most rows out."""
    case = QuantizeCase((2, rows, columns), dtype, group=None, activation="swiglu", counts=(1, 2))
    case.check()
    assert case.explain()["config"] == tile


def test_many_rows_are_kept_in_shared_memory():
    """More rows than multiprocessors, in the tile of wide ones; counts leave most of them out."""
    runs, rows = 4, sized(small=40, full=70)
    for columns, activation in [(8200, None), (6152, "swiglu")]:
        case = QuantizeCase(
            (runs, rows, columns), group=None, counts=(1, 0, 2, 1), activation=activation
        )
        case.check()
        assert case.explain()["config"] == "256x1 kept"


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_dtypes(dtype):
    QuantizeCase((ROWS, 384), dtype).check()


@pytest.mark.parametrize("columns,group", [(130, 65), (1031, None), (36, 12)])
def test_single_elements(columns, group):
    QuantizeCase((4, columns), group=group).check()


@pytest.mark.parametrize("activation", GATES)
def test_gates_far_below_zero(activation):
    """e5m2 shows them beside a group's largest element: there are 32 powers of two between."""
    QuantizeCase((10, 2000), out_dtype="e5m2", activation=activation, power_of_two=True).check()


@pytest.mark.parametrize("activation", GATES)
def test_gates(activation):
    case = QuantizeCase((ROWS, 256), activation=activation)
    case.check()
    if activation == "geglu":
        dataclasses.replace(case, group=None, out_dtype="int8", shape=(ROWS, 512)).check()


def test_powers_of_two():
    case = QuantizeCase((ROWS, 256), power_of_two=True, spread=4.0)
    case.check()
    x = torch.full((1, 128), 448.0, device=DEVICE)
    for factor, scale in [(1, 1), (1.001, 2), (0.5, 0.5), (0.999, 1)]:
        made = jit.quantize(x * factor, scale_power_of_two=True)[1]
        assert made.item() == scale, (factor, made)


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize("group", [32, 128, None])
def test_scales_of_bytes(group, columns_first):
    """The same numbers as in float32, and the same results."""
    x = QuantizeCase((ROWS, 384), spread=4.0).x()
    wanted, scale = jit.quantize(x, group=group, scale_power_of_two=True)
    shape = list(scale.shape)
    stored = torch.zeros(shape[::-1] if columns_first else shape, dtype=torch.uint8, device=DEVICE)
    made = stored.view(torch.float8_e8m0fnu)
    made = made.mT if columns_first else made
    out, same = jit.quantize(x, group=group, scale_out=made)
    assert same is made
    assert torch.equal(made.float(), scale)
    assert torch.equal(out.view(torch.uint8), wanted.view(torch.uint8))
    x[0, 0] = math.inf
    jit.quantize(x, group=group, scale_out=made)
    assert made[0, 0].float().isnan()


@pytest.mark.parametrize("storage", ["guarded", "offset", "odd", "head_slice"])
def test_strides(storage):
    case = QuantizeCase((2, 3, 256), storage=storage)
    case.check()
    dataclasses.replace(case, storage="plain", out_storage=storage, columns_first=True).check()


@pytest.mark.parametrize("counts", [(3, 0, 5), (4, -1, 7)])
def test_rows_beyond_the_counts_are_left_alone(counts):
    case = QuantizeCase((3, 5, 256), counts=counts)
    case.check()
    dataclasses.replace(case, activation="swiglu", columns_first=True).check()


def test_layouts_of_new_scales():
    x = randn([7, 384], torch.bfloat16, 1)
    out, scale = jit.quantize(x)
    assert out.dtype == torch.float8_e4m3fn and out.is_contiguous() and scale.is_contiguous()
    same, columns = jit.quantize(x, scale_layout="column")
    assert columns.stride() == (1, 7) and torch.equal(columns, scale)
    assert torch.equal(same.float(), out.float())
    experts = jit.quantize(x.view(1, 7, 384).expand(2, 7, 384), scale_layout="column")[1]
    assert experts.shape == (2, 7, 3) and experts.stride() == (21, 1, 7)
    assert jit.quantize(x[0], scale_layout="column", out_dtype=torch.float8_e5m2)[1].shape == (3,)


def test_small_and_large_numbers():
    """The floor of the scale, zeros with their signs, and the limits of float32."""
    x = torch.zeros(4, 128, device=DEVICE)
    x[0, 0], x[1, 0], x[2, 0], x[3, 0] = 1e-6, -0.0, 3e38, 1e-4
    out, scale = jit.quantize(x)
    codes, scales = textbook(x, QuantizeCase((4, 128)))
    assert torch.equal(scale, scales) and torch.equal(out.float(), codes)
    assert scale[1].item() == pytest.approx(1e-4 / 448) and math.copysign(1, out[1, 0]) == -1


def test_what_is_not_a_number_stays_in_its_group():
    x = randn([2, 256], torch.float32, 1)
    x[0, 5], x[1, 130] = math.nan, math.inf
    out, scale = jit.quantize(x)
    codes, scales = textbook(x, QuantizeCase((2, 256)))
    assert torch.isnan(out[0, 5].float()) and int(torch.isnan(out.float()).sum()) == 2
    assert torch.isnan(out[1, 130].float()) and scale[1, 1] == math.inf
    assert torch.equal(scale, scales)
    assert torch.equal(out.float().nan_to_num(0.0), codes.nan_to_num(0.0))
    assert (out[1, 131:].float() == 0).all()


def test_a_row_gives_the_same_bits_in_every_batch():
    x = randn([9, 384], torch.bfloat16, 1)
    out, scale = jit.quantize(x, group=None)
    for row in (0, 4, 8):
        one, of_one = jit.quantize(x[row : row + 1], group=None)
        assert torch.equal(one[0].float(), out[row].float()) and of_one[0] == scale[row]


def test_nothing_to_do():
    for shape in [(0, 256), (3, 0), (2, 0, 128)]:
        out, scale = jit.quantize(torch.zeros(shape, device=DEVICE))
        assert out.shape == shape and scale.shape == (*shape[:-1], shape[-1] // 128)


def test_no_shape_compiles_after_prewarming():
    report = kiln.prewarm({"op": "quantize"}, arch())
    assert report["failed"] == [] and report["total"] == 16
    with kiln.no_compile():
        for rows, columns, group in [(1, 128, 128), (3, 7168, 128), (9, 2048, 256), (3, 1000, None),
                                     (3, 2048, None), (2, 4096, None), (2, 6144, None),
                                     (2, 8192, None), (2, 16384, None), (1, 16392, None),
                                     (1, 50000, None), (40, 30000, None), (40, 59000, None),
                                     (80, 16392, None), (80, 59000, None),
                                     (1, 120000, None)]:  # fmt: skip
            QuantizeCase((rows, columns), group=group, out_storage="plain").check()


def test_single_halves_have_no_kernels_that_keep_them():
    """Copies to shared memory have 4 bytes or more."""
    for dtype, kernels in (("bfloat16", 14), ("float32", 16)):
        report = kiln.prewarm({"op": "quantize", "vector": 1, "dtype": dtype}, arch(), check=True)
        assert report["total"] == kernels
    with pytest.raises(ValueError, match="not a row of the config table"):
        kiln.inspect({"op": "quantize", "vector": 1, "lanes": 256, "keeps": True}, arch())


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize(
    "error,text,x,words",
    [
        (TypeError, "x must be float16, bfloat16 or float32, got int32",
         zeros(2, 128, dtype=torch.int32), {}),
        (ValueError, "x must have one to three dimensions, the last of which are columns, got [1,",
         zeros(1, 1, 2, 128), {}),
        (ValueError, "x must have an even number of columns, half of which are gates, got [2, 7]",
         zeros(2, 7), dict(activation="swiglu")),
        (ValueError, 'activation must be "swiglu", "geglu" or "geglu_tanh", got "silu"',
         zeros(2, 8), dict(activation="silu")),
        (ValueError, "group must be at least 1, or None for all of a row, got 0",
         zeros(2, 8), dict(group=0)),
        (ValueError, "group must be the number of columns that share a scale", zeros(2, 8),
         dict(group=-1)),
        (ValueError, 'scale_layout must be "row" or "column", got "m"', zeros(2, 8),
         dict(scale_layout="m")),
        (TypeError, "out_dtype must be float8_e4m3fn or float8_e5m2, got float16; for int8 give",
         zeros(2, 8), dict(out_dtype=torch.float16)),
        (TypeError, "out_dtype is float8_e4m3fn but out is int8; give one of the two",
         zeros(2, 8), dict(out_dtype="float8_e4m3fn", out=zeros(2, 8, dtype=torch.int8))),
        (TypeError, "out must be float8_e4m3fn, float8_e5m2 or int8, got float32", zeros(2, 8),
         dict(out=zeros(2, 8))),
        (ValueError, "out must have shape [2, 4], got [2, 8]", zeros(2, 8),
         dict(activation="geglu", out=zeros(2, 8, dtype=torch.int8))),
        (ValueError, "scale_out must have shape [2, 2], got [2, 1]", zeros(2, 200),
         dict(scale_out=zeros(2, 1))),
        (TypeError, "scale_out must be float32 or float8_e8m0fnu", zeros(2, 128),
         dict(scale_out=zeros(2, 1, dtype=torch.float16))),
        (ValueError, "counts count rows of x [experts, capacity, columns], got x [2, 128]",
         zeros(2, 128), dict(counts=zeros(2, dtype=torch.int32))),
        (ValueError, "counts must have shape [2], got [3]", zeros(2, 4, 128),
         dict(counts=zeros(3, dtype=torch.int32))),
        (ValueError, "x must be contiguous in its last dimension", zeros(128, 2).mT, {}),
    ],
)  # fmt: skip
def test_what_is_refused(error, text, x, words):
    with pytest.raises(error) as caught:
        jit.quantize(x, **words)
    assert "quantize: " in str(caught.value) and text in str(caught.value), caught.value


def test_sizes_that_are_refused():
    x = torch.zeros(1, device=DEVICE).as_strided((2**31, 1), (0, 1))
    with pytest.raises(ValueError, match=r"at most 2\^20 columns to quantise and 2\^31 - 1 groups"):
        kiln.explain("quantize", x, out=zeros(1, dtype=torch.int8), scale_out=zeros(1))


def test_overlaps_that_are_refused():
    x = zeros(2, 128)
    out = x.view(torch.int8)[:, :128]
    with pytest.raises(ValueError, match="out shares memory with x"):
        jit.quantize(x, out=out)


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["sm_80"])
def test_other_architectures(device, name):
    with device.on(name):
        QuantizeCase((3, 256)).check()
