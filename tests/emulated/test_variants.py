"""Variants on the emulated device: expressions, tensors, files, beside the built-in options."""

import pytest
import torch
from attention_case import AttentionCase, judge
from kiln import jit
from storage import randn

pytestmark = pytest.mark.usefixtures("order")

SHAPE = dict(batch=2, heads=4, heads_kv=2, len_q=50, len_kv=70)


def run(variant, case, logits=None, mask=None):
    """One call with a bound variant, judged against the same hooks in PyTorch."""
    q, k, v = case.inputs()
    out, lse = case.outputs()
    options = case.options()
    jit.flash_attention(
        q, k, v, out=out.view, lse=lse, layout=case.layout, variant=variant, **options
    )
    judge(str(case), q, k, v, out, lse, layout=case.layout, logits=logits, mask=mask, **options)
    return out.view, lse


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"layout": "bhsd", "head_dim": 40}])
def test_softcap_by_expression(dtype, options):
    variant = jit.Variant("capped", params={"cap": "f32"}, logits="cap * tanh(logit / cap)")
    for cap in (4.0, 0.5):
        run(variant(cap=cap), AttentionCase(dtype=dtype, **SHAPE, **options),
            logits=lambda s, at, c=cap: c * torch.tanh(s / c))  # fmt: skip


@pytest.mark.parametrize("expanded", [False, True])
def test_a_bias_tensor_with_and_without_broadcast_strides(expanded):
    variant = jit.Variant("bias", tensors={"bias": "f32[h, q, kv]"}, logits="logit + bias")
    case = AttentionCase(**{**SHAPE, "len_q": 70})
    bias = randn([1 if expanded else 4, 70, 70], torch.float32, 4).expand(4, 70, 70)
    run(variant(bias=bias), case, logits=lambda s, at: s + bias.double()[None])


def test_a_bias_by_row_and_batch_in_half_precision():
    variant = jit.Variant(
        "row_bias", tensors={"bias": "bf16[b, h_kv, row, kv]"}, logits="logit + 2.0f * bias"
    )
    bias = randn([2, 2, 50, 70], torch.bfloat16, 4)
    run(variant(bias=bias), AttentionCase(**SHAPE),
        logits=lambda s, at: s + 2.0 * bias.to(s.dtype).repeat_interleave(2, 1))  # fmt: skip


def test_a_bool_mask_tensor_with_fully_masked_rows():
    variant = jit.Variant("masked", tensors={"allowed": "bool[b, row, kv]"}, mask="allowed")
    allowed = randn([2, 50, 70], torch.float32, 8) < -0.5
    allowed[0, 17] = False
    allowed[1, 30:] = False
    out, lse = run(variant(allowed=allowed), AttentionCase(**SHAPE),
                   mask=lambda at: allowed[:, None])  # fmt: skip
    assert (out[0, 17] == 0).all() and (out[1, 30:] == 0).all()
    assert (lse[0, :, 17] == -torch.inf).all()


def test_a_mask_expression_with_an_integer_parameter():
    variant = jit.Variant(
        "chunked", params={"chunk": "i32"}, mask="q / chunk == kv / chunk && kv <= q"
    )
    for chunk in (1, 7, 64, 1000):
        run(variant(chunk=chunk), AttentionCase(**SHAPE),
            mask=lambda at, c=chunk: (at.q // c == at.kv // c) & (at.kv <= at.q))  # fmt: skip


def test_every_name_of_an_expression():
    variant = jit.Variant(
        "names",
        logits="logit + 0.01f * (b + 2 * h + 3 * h_kv) + 0.001f * (row - q + kv) "
        "+ 0.002f * (len_q - len_kv)",
        mask="row % 2 == 0 || kv != 3",
    )
    run(variant, AttentionCase(**SHAPE),
        logits=lambda s, at: s + 0.01 * (at.b + 2 * at.h + 3 * at.h_kv)
        + 0.001 * (at.row - at.q + at.kv) + 0.002 * (at.len_q - at.len_kv),
        mask=lambda at: (at.row % 2 == 0) | (at.kv != 3))  # fmt: skip


def test_a_variant_beside_all_built_in_options():
    """softcap and ALiBi come before the expression, the masks are joined, sinks come last."""
    case = AttentionCase(softcap=6.0, alibi="h", sinks="f32", window=(30, 0), causal=True, **SHAPE)
    variant = jit.Variant(
        "scaled", params={"factor": "f32"}, logits="factor * logit", mask="kv % 5 != 0"
    )
    run(variant(factor=1.5), case, logits=lambda s, at: 1.5 * s, mask=lambda at: at.kv % 5 != 0)


FILE_VARIANT = """
// Keys of the query's own block count, and their logits are shifted by the head.
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kMasks = true;
  kiln::Slot<float> shift;
  kiln::Slot<int> block;
  __device__ float logits(float logit, const kiln::Position& at) const {
    return logit + shift * static_cast<float>(at.h);
  }
  __device__ bool keep(const kiln::Position& at) const { return at.kv / block <= at.q / block; }
};
"""


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"sinks": "f32", "window": (30, 9)}])
def test_a_template_file(tmp_path, options):
    path = tmp_path / "by_block.cuh"
    path.write_text(FILE_VARIANT)
    variant = jit.Variant("by_block", params={"shift": "f32", "block": "i32"}, file=str(path))
    for block in (16, 33):
        run(variant(shift=0.25, block=block), AttentionCase(**SHAPE, **options),
            logits=lambda s, at: s + 0.25 * at.h,
            mask=lambda at, n=block: at.kv // n <= at.q // n)  # fmt: skip


def test_a_numpy_tensor_in_a_variant():
    variant = jit.Variant("bias", tensors={"bias": "f32[h, q, kv]"}, logits="logit + bias")
    case = AttentionCase(dtype="f16", **{**SHAPE, "len_q": 70})
    bias = randn([4, 70, 70], torch.float32, 4)
    q, k, v = case.inputs()
    out, lse = jit.flash_attention(
        q.numpy(), k.numpy(), v.numpy(), return_lse=True, variant=variant(bias=bias.numpy())
    )
    judge("NumPy bias", q, k, v, torch.from_numpy(out), torch.from_numpy(lse),
          logits=lambda s, at: s + bias.double()[None].to(s.dtype))  # fmt: skip
