"""Attention whose results are quantised to e4m3 by a static scale."""

import dataclasses

import pytest
import torch
from append_case import quantized, same_bits
from case_group import CaseGroup
from grid import sized
from kiln import jit
from storage import DEVICE, DTYPES
from varlen_case import VarlenCase, integers

pytestmark = pytest.mark.usefixtures("compiled", "device")

LONG = sized(small=700, full=4099)
SEQUENCES = {
    "decode": dict(lens_q=(1, 1, 1, 1), lens_k=(LONG, 3, 0, 129), heads=8),
    "rows-32": dict(lens_q=(4, 3, 0), lens_k=(LONG, 40, 7), heads=16),
    "rows-64": dict(lens_q=(5, 5), lens_k=(300, LONG), heads=14),
    "mixed": dict(lens_q=(1, 75, 0, 6, 1), lens_k=(LONG, 75, 9, 4, 33), heads=4),
}
SCALES = [0.01, 0.37, 1.0]
OPTIONS = [{}, {"sinks": "f32"}, {"window": (40, 3)}, {"softcap": 5.0, "alibi": "h"}]
DIMS = [(64, 64), (128, 128), (256, 256), (72, 72), (192, 128), (16, 40)]
E4M3 = torch.float8_e4m3fn


def shape_groups():
    """Every head dim with each kind of sequences; all else takes turns."""
    turn = 0
    for dim, dim_v in DIMS:
        for name, sequences in SEQUENCES.items():
            turn += 1
            case = VarlenCase(
                dtype=("bf16", "f16")[turn % 2], head_dim=dim, head_dim_v=dim_v,
                keys=("packed", "paged", "cache")[(turn + turn // 4) % 3], page=(16, 7)[turn % 2],
                stored=("", "e4m3", "int8")[(turn + turn // 3) % 3], out_scale=SCALES[turn % 3],
                **sequences, **OPTIONS[(turn + turn // 4) % 4],
            )  # fmt: skip
            yield CaseGroup(f"{name}-d{dim}x{dim_v}", (case,))


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("placed", ["plain", "permuted", "head_slice", "offset", "odd"])
@pytest.mark.parametrize("dim", [64, 72])
def test_results_lie_anywhere(placed, dim):
    """At addresses of four bytes that words can be written to, and at others."""
    shape = SEQUENCES["mixed"] if placed != "permuted" else dict(lens_q=(3, 3), lens_k=(90, 5))
    op = "varlen" if placed != "permuted" else "kvcache"
    VarlenCase(head_dim=dim, placed=placed, op=op, out_scale=0.02, **shape).check()


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_number_is_rounded_as_pytorch_does_it_but_saturates(device, arch, dtype):
    """A sequence of one key returns its value: infinities and NaN among them."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    v = bits.view(DTYPES[dtype]).view(256, 1, 1, 256).to(DEVICE)
    q = torch.zeros_like(v)
    for scale in (1.0, 0.37):
        given = torch.tensor([scale], device=DEVICE)
        with device.on(arch):
            out, lse = jit.flash_attention_with_kvcache(
                q, q, v, cache_seqlens=integers([1] * 256), out_scale=given, return_lse=True
            )
        expected = quantized((v.float() + 0.0) / scale, E4M3)  # a sum of zeros is not -0
        same = same_bits(out, expected)
        assert out.dtype == E4M3
        assert same.all(), f"{v[~same][:8].tolist()} / {scale} differ"
        assert torch.equal(lse, torch.zeros_like(lse))


@pytest.mark.parametrize("num_splits", [0, 1])
def test_the_log_sum_exp_is_as_without_a_scale(num_splits):
    case = VarlenCase(num_splits=num_splits, **SEQUENCES["decode"])
    given = case.inputs()
    plain, scaled = case.call(given), dataclasses.replace(case, out_scale=3.0).call(given)
    plain.run(), scaled.run()
    assert torch.equal(scaled.lse.nan_to_num(7), plain.lse.nan_to_num(7))


@pytest.mark.parametrize("len_q", [1, 33])
def test_with_new_keys(len_q):
    """They are appended by the first launch, and the result is quantised by the last."""
    q, new = (torch.randn([2, len_q, n, 64], device=DEVICE).half() for n in (4, 2))
    caches = [torch.randn([2, 99, 2, 64], device=DEVICE).half() for _ in range(2)]
    call = dict(cache_seqlens=integers([60, 3]), k_new=new, v_new=new, causal=True)
    plain = jit.flash_attention_with_kvcache(q, *(x.clone() for x in caches), **call)
    given = torch.tensor(0.02, device=DEVICE)
    out = jit.flash_attention_with_kvcache(q, *caches, **call, out_scale=given)
    exact = plain.float() / 0.02
    assert ((out.float() - exact).abs() <= 0.07 * exact.abs() + 0.1).all()


@pytest.mark.emulated
def test_hopper_takes_the_portable_kernel(device):
    """Prefill too, and the explanation says why."""
    with device.on("sm_90a"):
        call = VarlenCase(out_scale=0.5, **SEQUENCES["mixed"]).explain()
    assert call["path"] == "varlen" and call["spec"]["out_dtype"] == "float8_e4m3fn"
    assert "out is quantised" in call["why"][0]


def test_a_row_without_keys_is_zero():
    case = VarlenCase(lens_q=(1, 2), lens_k=(0, 1), out_scale=0.5)
    call = case.check()
    assert (call.queries(call.out.view, 0).float() == 0).all()


def test_a_replayed_call_reads_the_scale_anew():
    """The kernel alone reads it."""
    q = torch.zeros([1, 1, 2, 64], device=DEVICE).half()
    v = torch.full([1, 1, 1, 64], 6.0, device=DEVICE).half()
    scale = torch.tensor(2.0, device=DEVICE)
    for by in (2.0, 0.5):
        scale.fill_(by)
        out = jit.flash_attention_with_kvcache(
            q, v, v, cache_seqlens=integers([1]), out_scale=scale
        )
        assert (out.float() == 6.0 / by).all()
