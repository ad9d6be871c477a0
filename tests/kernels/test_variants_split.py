"""Variants of attention whose keys are split: masks, logits, hooks that run once for a row."""

import math

import pytest
import torch
from attention_case import judge
from kiln import jit
from reference import attention
from split_case import each_split
from storage import DEVICE, randn
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")


@each_split
def test_a_mask_of_a_variant(split):
    allowed = randn([split.batch, split.len_q, split.len_kv], torch.float32, 8) < -0.5
    allowed[:, 0, 16 : split.len_kv - 5] = False  # whole splits
    allowed[0, 1] = False
    variant = jit.Variant("masked", tensors={"allowed": "bool[b, row, kv]"}, mask="allowed")
    out, lse = run(variant(allowed=allowed), split, mask=lambda at: allowed[:, None])
    assert (out[0, 1] == 0).all()
    assert (lse[0, :, 1] == -math.inf).all()


@each_split
def test_a_mask_of_a_variant_beside_a_window(split):
    variant = jit.Variant("every_third", mask="kv % 3 != h_kv")
    run(variant, split, window=(550, 0), mask=lambda at: at.kv % 3 != at.h_kv)


@each_split
def test_logits_of_a_variant(split):
    variant = jit.Variant(
        "biased", params={"cap": "f32"}, tensors={"bias": "f32[h, kv]"},
        logits="cap * tanh((logit + bias) / cap) + 0.01f * row",
    )  # fmt: skip
    bias = randn([split.heads, split.len_kv], torch.float32, 4)
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


@each_split
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
