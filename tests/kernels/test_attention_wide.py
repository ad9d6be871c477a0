"""Head dims of which warps share the columns of v: 512 and 256, and 248, where they do not."""

import dataclasses

import kiln
import pytest
import torch
from attention_case import AttentionCase
from case_group import CaseGroup
from grid import sized
from kiln import jit
from storage import DEVICE, randn
from varlen_case import QUANTIZED, VarlenCase

pytestmark = pytest.mark.usefixtures("compiled", "device")

LONG = sized(small=333, full=4099)
DENSE = {
    "decode": dict(len_q=3, len_kv=LONG, heads=8, heads_kv=2),
    "few": dict(len_q=21, len_kv=LONG, heads=6, heads_kv=2, batch=2),
    "many": dict(len_q=77, len_kv=91, heads=3, heads_kv=1),
}
SEQUENCES = {
    "decode": dict(lens_q=(1, 1, 1, 1), lens_k=(LONG, 3, 0, 129), heads=8),
    "rows-64": dict(lens_q=(5, 5), lens_k=(100, LONG), heads=14),
    "mixed": dict(lens_q=(1, 45, 0, 6), lens_k=(LONG, 45, 9, 4), heads=4),
}
MASKS = {"full": {}, "causal": {"causal": True}, "window": {"causal": True, "window": (40, 0)}}
OPTIONS = [{"softcap": 5.0, "alibi": "h"}, {"sinks": "bf16"}, {"scale": -0.2}]


def dense_groups():
    for at, (name, shape) in enumerate(DENSE.items()):
        for kind, (mask, options) in enumerate(MASKS.items()):
            case = AttentionCase(
                dtype=("bf16", "f16")[(at + kind) % 2], head_dim=512, **shape, **options
            )
            more = dataclasses.replace(case, **OPTIONS[(at + kind) % 3])
            yield CaseGroup(f"{name}-{mask}", (case, more))


@pytest.mark.parametrize("group", list(dense_groups()), ids=str)
def test_dense(group):
    group.check()


@pytest.mark.parametrize("dims", [(248, 248), (256, 248)], ids=str)
@pytest.mark.parametrize("name", ["few", "many"])
def test_no_column_of_padding_is_written(name, dims):
    """Warps that share 256 columns would write 8 of the next row, or behind the last."""
    shape = dict(DENSE[name], out_storage="plain", head_dim=dims[0], head_dim_v=dims[1])
    AttentionCase(**shape).check()


@pytest.mark.parametrize("name", DENSE)
def test_elements_at_any_address(name):
    AttentionCase(
        head_dim=512, causal=True, storage="offset", out_storage="odd", **DENSE[name]
    ).check()


@pytest.mark.parametrize("peak", ["edges", "diagonal"])
@pytest.mark.parametrize("name", DENSE)
def test_peaks(name, peak):
    """One key dominates each row, at every edge of the keys that warps share."""
    causal = peak == "diagonal"
    AttentionCase(head_dim=512, causal=causal, scale=1.0, peak=peak, **DENSE[name]).check()


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
def test_masks_as_tensors(dtype):
    q, k, v = (randn([1, 35, 2, 512], torch.float16, seed) for seed in range(3))
    mask = randn([1, 1, 35, 35], torch.float32, 3)
    mask = mask > 0 if dtype == torch.bool else mask
    out = jit.flash_attention(q, k, v, attn_mask=mask)
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(x.double().transpose(1, 2) for x in (q, k, v)),
        attn_mask=mask if dtype == torch.bool else mask.double(),
    )
    torch.testing.assert_close(out.double(), exact.transpose(1, 2), atol=3e-3, rtol=1e-2)


def sequence_groups():
    """All else takes turns."""
    turn = 0
    for stored in ("", *QUANTIZED):
        for name, sequences in SEQUENCES.items():
            turn += 1
            case = VarlenCase(
                dtype=("bf16", "f16")[turn % 2], head_dim=512, stored=stored,
                keys=("paged", "packed", "cache")[(turn + turn // 4) % 3], page=(16, 7)[turn % 2],
                scales="heads" if stored else "", out_scale=(0.0, 0.0, 0.3)[turn % 3],
                **sequences, **[{}, {"window": (40, 3)}, *OPTIONS[:2]][turn % 4],
            )  # fmt: skip
            yield CaseGroup(f"{name}-{stored or 'plain'}", (case,))


@pytest.mark.parametrize("group", list(sequence_groups()), ids=str)
def test_sequences(group):
    group.check()


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_other_architectures(device, arch):
    """Tiles of less memory, and bytes that no instruction converts."""
    with device.on(arch):
        for name in ("few", "many"):
            AttentionCase(head_dim=512, causal=True, **DENSE[name]).check()
        for stored in ("", "e4m3"):
            for name in ("decode", "mixed"):
                VarlenCase(head_dim=512, stored=stored, **SEQUENCES[name]).check()


@pytest.mark.parametrize("keys", ["packed", "paged"])
def test_without_splits_a_sequence_does_not_depend_on_others(keys):
    case = VarlenCase(
        lens_q=(1, 20), lens_k=(333, 200), heads=8, num_splits=1, keys=keys, head_dim=512
    )
    given = case.inputs()
    together = case.call(given)
    together.run()
    for b in range(case.batch):
        alone = dataclasses.replace(
            case, lens_q=case.lens_q[b : b + 1], lens_k=case.lens_k[b : b + 1]
        ).call(given[b : b + 1])
        alone.run()
        expected = together.queries(together.out.view, b)
        assert torch.equal(alone.queries(alone.out.view, 0), expected)


@pytest.mark.emulated
def test_hopper_takes_the_portable_tiles(device):
    with device.on("sm_90a"):
        call = AttentionCase(head_dim=512, **DENSE["many"]).explain()
    assert call["path"] == "portable" and "head dim of 512" in call["why"][0]


def test_both_head_dims_are_512():
    q, v = (torch.zeros([1, 3, 1, dim], device=DEVICE).half() for dim in (512, 256))
    for keys, values in ((q, v), (v, q)):
        with pytest.raises(ValueError, match="must have q's head dim where one of them is beyond"):
            jit.flash_attention(keys, keys, values)
    with pytest.raises(ValueError, match="a multiple of 8 up to 256, or 512, got 264"):
        wide = torch.zeros([1, 3, 1, 264], device=DEVICE).half()
        jit.flash_attention(wide, wide, wide)
    with pytest.raises(ValueError, match="'head_dim_v' must be head_dim where one of them"):
        kiln.prewarm({"op": "flash_attention", "head_dim": 512, "head_dim_v": 64}, "sm_90")
