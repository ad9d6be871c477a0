"""Tests of attention whose keys are split that take their size from a fixture: `len_kv`, at least
600. tests/gpu and tests/emulated import them.
"""

import dataclasses
import math
import os

import pytest
import torch
from attention_case import AttentionCase, edges, judge
from kiln import jit
from reference import attention
from split_case import spelled_keys
from storage import DEVICE, randn
from variant_case import run

# One for warps that stream keys by themselves, one for a tile of 64 rows.
SHAPES = {
    "decode": dict(len_q=2, heads=8, heads_kv=2, batch=2),
    "few": dict(len_q=5, heads=14, heads_kv=2),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def split(request, len_kv):
    case = AttentionCase(len_kv=len_kv, **request.param)
    assert case.explain()["splits"] > 1
    return case


def test_the_value_of_the_dominating_key_is_read(split, len_kv):
    """Independent of the reference: the signs of a row's output spell the key that it looked at."""
    rows = split.batch * split.heads * split.len_q
    peaked = dataclasses.replace(
        split, scale=1.0, peak="edges", batch=split.batch * len_kv // 8 // rows + 1
    )
    assert peaked.explain()["splits"] > 1
    out, _ = peaked.check()
    assert torch.equal(spelled_keys(out).transpose(1, 2), edges(peaked))


def test_a_mask_of_a_variant(split, len_kv):
    allowed = randn([split.batch, split.len_q, len_kv], torch.float32, 8) < -0.5
    allowed[:, 0, 16 : len_kv - 5] = False  # whole splits
    allowed[0, 1] = False
    variant = jit.Variant("masked", tensors={"allowed": "bool[b, row, kv]"}, mask="allowed")
    out, lse = run(variant(allowed=allowed), split, mask=lambda at: allowed[:, None])
    assert (out[0, 1] == 0).all()
    assert (lse[0, :, 1] == -math.inf).all()


def test_a_mask_of_a_variant_beside_a_window(split):
    variant = jit.Variant("every_third", mask="kv % 3 != h_kv")
    run(variant, split, window=(550, 0), mask=lambda at: at.kv % 3 != at.h_kv)


def test_logits_of_a_variant(split, len_kv):
    variant = jit.Variant(
        "biased", params={"cap": "f32"}, tensors={"bias": "f32[h, kv]"},
        logits="cap * tanh((logit + bias) / cap) + 0.01f * row",
    )  # fmt: skip
    bias = randn([split.heads, len_kv], torch.float32, 4)
    run(variant(cap=6.0, bias=bias), split, sinks=randn([split.heads], torch.float32, 5),
        logits=lambda s, at: 6.0 * torch.tanh((s + bias[None, :, None].to(s.dtype)) / 6.0)
        + 0.01 * at.row)  # fmt: skip


FILE_VARIANT = """
// A key without a value that counts in the LSE too, and an output scaled by head.
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kStartsRows = true;
  static constexpr bool kFinishesRows = true;
  static constexpr bool kTransformsOutput = true;
  kiln::Slot<float> first;
  __device__ void row_init(kiln::RowSum& sum, const kiln::Position&) const { sum.add(first); }
  __device__ void row_finish(kiln::RowSum& sum, const kiln::Position& row) const {
    sum.add(0.5f * static_cast<float>(row.row));
  }
  __device__ float out(float o, const kiln::Position& row) const {
    return o * static_cast<float>(1 << row.h % 4);
  }
};
"""


def test_hooks_about_rows_run_once(split, tmp_path):
    path = tmp_path / "rows.cuh"
    path.write_text(FILE_VARIANT)
    variant = jit.Variant("rows", params={"first": "f32"}, file=str(path))
    q, k, v = split.inputs()
    out, lse = jit.flash_attention(q, k, v, variant=variant(first=7.0), return_lse=True)
    factors = 2 ** (torch.arange(split.heads, device=DEVICE) % 4)
    for row in range(split.len_q):
        one = slice(row, row + 1)
        both = math.log(math.exp(7.0) + math.exp(0.5 * row))
        judge(
            f"{split}, row {row}", q[:, one], k, v,
            out[:, one] / factors[:, None],
            attention(q[:, one], k, v, precision=torch.float64)[1].float(),
            sinks=torch.full([split.heads], both, device=DEVICE),
        )  # fmt: skip
    bare = attention(q, k, v, precision=torch.float64)[1]
    expected = torch.logaddexp(bare, torch.full_like(bare, 7.0))
    assert (lse - expected).abs().max() < 1e-3


def test_repeats_are_bit_identical(split):
    q, k, v = split.inputs()
    first, first_lse = jit.flash_attention(q, k, v, return_lse=True)
    others = split.inputs(seed=20)
    for _ in range(20):
        jit.flash_attention(*others)  # leaves its own results in the workspace
        out, lse = split.outputs()
        jit.flash_attention(q, k, v, out=out.view, lse=lse)
        assert torch.equal(out.view, first) and torch.equal(lse, first_lse)


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])  # 0x7f7f7f7f is 3e38, 0xffffffff is NaN
def test_what_lies_in_the_workspace_does_not_matter(split, byte):
    q, k, v = split.inputs()
    size = split.explain()["workspace_bytes"]
    assert size > 0
    out, lse = split.outputs()
    garbage = torch.full([size], byte, dtype=torch.uint8, device=DEVICE)
    address = garbage.data_ptr()
    del garbage
    if DEVICE.type == "cuda" and "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ:
        # The allocator hands it out again, to this call as to the next one of its size.
        assert torch.empty([size], dtype=torch.uint8, device=DEVICE).data_ptr() == address
    jit.flash_attention(q, k, v, out=out.view, lse=lse)
    judge(f"{split} in {byte:#x}", q, k, v, out, lse)
