"""Merging partial results: every dtype, width, number of parts, stride and base."""

import dataclasses
import math

import kiln
import pytest
import torch
from case_group import CaseGroup
from grid import arch, sized
from kiln import jit
from merge_case import MergeCase, judge, judge_lse
from reference import attention_states, merge_states
from storage import DEVICE, DTYPES, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

TOKENS = sized(small=5, full=700)


def width_groups():
    """Each row of the table, rows of several turns, and single elements."""
    for dtype in DTYPES:
        cases = [
            MergeCase(dtype, shape=(parts, 3, 2, columns))
            for parts, columns in [
                (1, 8), (2, 64), (3, 128), (2, 192), (4, 256), (5, 512), (2, 1024), (9, 40),
                (2, 33), (2, 300), (1, 128),
            ]
        ]  # fmt: skip
        yield CaseGroup(dtype, tuple(cases))


@pytest.mark.parametrize("group", list(width_groups()), ids=str)
def test_widths(group):
    group.check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out_dtype", DTYPES)
def test_dtypes(dtype, out_dtype):
    case = MergeCase(dtype, out_dtype, shape=(2, TOKENS, 3, 64))
    case.check()
    dataclasses.replace(case, shape=(3, TOKENS, 3, 20)).check()


@pytest.mark.parametrize("storage", ["plain", "guarded", "offset", "odd", "head_slice"])
@pytest.mark.parametrize("layout", ["ht", "th"])
def test_strides(storage, layout):
    case = MergeCase(storage=storage, layout=layout, shape=(3, TOKENS, 2, 64))
    case.check()
    dataclasses.replace(case, storage="guarded", out_storage=storage, lse_storage=storage).check()
    dataclasses.replace(case, out_storage="plain", lse_storage="expanded").check()


def test_permuted_parts():
    """Parts behind the heads, as an all-to-all leaves them, and tokens behind the parts."""
    case = MergeCase(shape=(3, 4, 2, 64), storage="permuted")
    case.check()
    outs, lses, given, words = case.arguments()
    truth, truth_lse = merge_states(outs, lses, None, "e")
    behind = outs.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3)
    out, lse = jit.merge_states(behind, given, **words, return_lse=True)
    judge("parts behind heads", out, truth, merge_states(outs.abs(), lses, None, "e")[0])
    judge_lse("parts behind heads", lse.mT, truth_lse)
    assert out.is_contiguous() and lse.is_contiguous()


@pytest.mark.parametrize("base", ["e", "2"])
@pytest.mark.parametrize("layout", ["ht", "th"])
def test_bases_and_sinks(base, layout):
    case = MergeCase("f32", base=base, layout=layout, shape=(4, TOKENS, 3, 64))
    for sinks in ("", *DTYPES):
        dataclasses.replace(case, sinks=sinks).check()
    dataclasses.replace(case, sinks="f32", spread=12.0).check()


@pytest.mark.parametrize("sinks", ["", "f32"])
def test_parts_without_keys(sinks):
    """NaN in a part that saw no key, and rows that no part saw a key for."""
    nowhere = tuple((part, 1) for part in range(3))
    for dtype in DTYPES:
        case = MergeCase(dtype, shape=(3, 4, 2, 64), sinks=sinks, empty=((0, 0), (2, 3), *nowhere))
        out, lse = case.check()
        assert (out[1] == 0).all() and (lse[:, 1] == -math.inf).all()
    MergeCase(shape=(6, 3, 2, 64), empty=tuple((part, 0) for part in range(5))).check()


def test_what_is_not_a_number_stays_in_its_row():
    outs = randn([3, 4, 2, 64], torch.float32, 1)
    lses = randn([3, 2, 4], torch.float32, 2)
    outs[1, 2, 0, 5] = math.nan
    lses[2, 1, 3] = math.nan
    out, lse = jit.merge_states(outs, lses, return_lse=True)
    assert torch.isnan(out[2, 0, 5]) and torch.isnan(out[3, 1]).all() and torch.isnan(lse[1, 3])
    assert int(torch.isnan(out).sum()) == 65 and int(torch.isnan(lse).sum()) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_part_is_its_own_result(dtype):
    outs = randn([1, 4, 3, 72], DTYPES[dtype], 1)
    lses = randn([1, 3, 4], torch.float32, 2, 100.0)
    out, lse = jit.merge_states(outs, lses, return_lse=True)
    assert torch.equal(out, outs[0]) and torch.equal(lse, lses[0])


def test_weights_far_apart():
    """Beyond what an exponential holds, and log-sum-exps far from 0."""
    for offset in (-1e4, 1e4):
        outs = randn([3, 2, 1, 64], torch.float32, 1)
        lses = torch.tensor([0.0, 150.0, -150.0], device=DEVICE).view(3, 1, 1).expand(3, 1, 2)
        lses = lses + offset
        out, lse = jit.merge_states(outs, lses, return_lse=True)
        judge("far apart", out, outs[1].double(), outs[1].double().abs())
        assert torch.equal(lse, lses[1])


def test_parts_of_attention_merge_to_the_whole():
    q = randn([6, 2, 64], torch.float64, 1)
    k, v = (randn([30, 2, 64], torch.float64, seed) for seed in (2, 3))
    truth, truth_lse = attention_states(q, k, v)
    parts = [attention_states(q, k[a:b], v[a:b]) for a, b in [(0, 7), (7, 7), (7, 29), (29, 30)]]
    outs = torch.stack([out for out, _ in parts]).float()
    lses = torch.stack([lse for _, lse in parts]).float()
    out, lse = jit.merge_states(outs, lses, layout="th", return_lse=True)
    judge("attention", out, truth, merge_states(outs.abs(), lses)[0])
    judge_lse("attention", lse, truth_lse)


def test_a_row_gives_the_same_bits_in_every_batch():
    case = MergeCase(shape=(3, 9, 2, 128))
    outs, _, lses, words = case.arguments()
    many = jit.merge_states(outs, lses, **words)
    assert torch.equal(jit.merge_states(outs, lses, **words), many)
    for token in (0, 4, 8):
        one = slice(token, token + 1)
        assert torch.equal(jit.merge_states(outs[:, one], lses[:, :, one], **words), many[one])


def test_dimensions_of_size_one_have_any_stride():
    outs = randn([2, 5, 1, 64], torch.bfloat16, 1)
    lses = randn([2, 1, 5], torch.float32, 2)
    truth = jit.merge_states(outs, lses)
    silly = outs.as_strided(outs.shape, (320, 64, 7, 1))
    assert torch.equal(jit.merge_states(silly, lses.as_strided(lses.shape, (5, 3, 1))), truth)
    assert MergeCase(shape=(2, 5, 1, 64)).explain()["key"] == explained(silly, lses)["key"]


def explained(*tensors, **words):
    return kiln.explain("merge_states", *tensors, **words)


def test_nothing_to_do():
    for shape in [(2, 0, 3, 64), (2, 3, 0, 64), (1, 3, 2, 0)]:
        parts, tokens, heads, _ = shape
        outs = torch.zeros(shape, device=DEVICE)
        lses = torch.zeros(parts, heads, tokens, device=DEVICE)
        assert jit.merge_states(outs, lses).shape == shape[1:]


@pytest.mark.parametrize("layout", ["ht", "th"])
def test_a_head_dim_of_0_has_an_lse(device, layout):
    parts, tokens, heads = 2, 5, 3
    lses = randn([parts, *((heads, tokens) if layout == "ht" else (tokens, heads))],
                 torch.float32, 1)  # fmt: skip
    outs = torch.zeros(parts, tokens, heads, 0, device=DEVICE)
    out, lse = jit.merge_states(outs, lses, layout=layout, return_lse=True)
    assert out.shape == (tokens, heads, 0)
    judge_lse(layout, lse, lses.double().logsumexp(0))


def test_no_shape_compiles_after_prewarming():
    report = kiln.prewarm({"op": "merge_states"}, arch())
    assert report["failed"] == [] and report["total"] == 7
    with kiln.no_compile():
        for columns in (8, 64, 128, 192, 256, 512, 2048):
            for parts, layout, base in [(1, "ht", "e"), (2, "th", "e"), (7, "th", "2")]:
                case = MergeCase(shape=(parts, 3, 2, columns), layout=layout, base=base)
                dataclasses.replace(case, out_storage="plain").check()


def refused(error, text, outs=(2, 4, 3, 64), lses=(2, 3, 4), **words):
    tensors = [
        given if isinstance(given, torch.Tensor) else torch.zeros(given, device=DEVICE)
        for given in (outs, lses)
    ]
    with pytest.raises(error) as caught:
        jit.merge_states(*tensors, **words)
    assert "merge_states: " in str(caught.value) and text in str(caught.value), caught.value


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize(
    "error,text,arguments",
    [
        (ValueError, "outs must have 4 dimensions [parts, tokens, heads, head_dim], got [2, 4, 64]",
         dict(outs=(2, 4, 64))),
        (ValueError, "outs must have at least one part, got [0, 4, 3, 64]",
         dict(outs=(0, 4, 3, 64), lses=(0, 3, 4))),
        (ValueError, "lses must have shape [2, 3, 4], got [2, 4, 3]", dict(lses=(2, 4, 3))),
        (ValueError, "lses must have shape [2, 4, 3], got [2, 3, 4]", dict(layout="th")),
        (ValueError, "lses must have shape [2, 3, 4], got [1, 3, 4]", dict(lses=(1, 3, 4))),
        (TypeError, "lses must be float32", dict(lses=zeros(2, 3, 4, dtype=torch.float16))),
        (TypeError, "outs must be float16, bfloat16 or float32, got int32",
         dict(outs=zeros(2, 4, 3, 64, dtype=torch.int32))),
        (ValueError, "outs must be contiguous in its last dimension",
         dict(outs=zeros(2, 4, 64, 3).mT)),
        (ValueError, "sinks must have shape [3], got [4]", dict(sinks=zeros(4))),
        (TypeError, "sinks must be float16, bfloat16 or float32, got int32",
         dict(sinks=zeros(3, dtype=torch.int32))),
        (ValueError, "out must have shape [4, 3, 64], got [4, 3, 63]", dict(out=zeros(4, 3, 63))),
        (TypeError, "out must be float16, bfloat16 or float32, got int32",
         dict(out=zeros(4, 3, 64, dtype=torch.int32))),
        (ValueError, "lse must have shape [3, 4], got [4, 3]", dict(lse=zeros(4, 3))),
        (ValueError, 'base must be "e" or "2", got "10"', dict(base="10")),
        (ValueError, 'layout must be "ht" ([heads, tokens]) or "th"', dict(layout="hd")),
    ],
)  # fmt: skip
def test_what_is_refused(error, text, arguments):
    refused(error, text, **arguments)


def test_overlaps_that_are_refused():
    outs = zeros(2, 4, 3, 64)
    refused(ValueError, "out shares memory with outs", outs=outs, out=outs[0])
    lses = zeros(2, 3, 4)
    refused(ValueError, "lse shares memory with lses", lses=lses, lse=lses[1])


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_other_architectures(device, name):
    with device.on(name):
        for dtype in DTYPES:
            MergeCase(dtype, shape=(3, 3, 2, 128), sinks="bf16").check()


@pytest.mark.cuda
def test_offsets_beyond_32_bits():
    tokens = 2**18 + 3
    outs = torch.zeros([2, tokens, 32, 256], dtype=torch.float16, device=DEVICE)
    outs[:, -1] = randn([2, 32, 256], torch.float16, 1)
    lses = torch.zeros([2, 32, tokens], device=DEVICE)
    out = jit.merge_states(outs, lses)
    last = outs[:, -1].double()
    judge("the last token", out[-1], last.mean(0), last.abs().mean(0))
    assert (out[:-1] == 0).all()
