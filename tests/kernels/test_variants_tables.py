"""Tables of variants: tensors that expressions read at indices of their own."""

import kiln
import pytest
import torch
from attention_case import AttentionCase
from kiln import jit
from storage import DEVICE, randn
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")

CASE = AttentionCase(batch=2, heads=4, heads_kv=2, len_q=37, len_kv=53)

BUCKETS = jit.Variant(
    "buckets",
    params={"middle": "i32"},
    tensors={"weights": "f32[h, 9]", "bucket": "i64[*]", "visible": "bool[b, *, kv]"},
    logits="logit + weights(h, bucket(kv - q + middle))",
    mask="visible(b, row / 8, kv)",
)


@pytest.mark.parametrize("count", [31, 1])
def test_computed_indices_are_clamped(count):
    """The distances go far beyond the buckets, whose upper 32 bits are no part of an index."""
    generator = torch.Generator().manual_seed(count)
    bucket = torch.randint(-3, 13, (count,), generator=generator).to(DEVICE)
    weights = randn([9, CASE.heads], torch.float32, 4).t()
    visible = randn([1, 4, CASE.len_kv], torch.float32, 5) > -0.5  # of 5 groups of rows the first 4
    variant = BUCKETS(
        weights=weights, bucket=bucket + (3 << 32), visible=visible, middle=count // 2
    )

    def logits(s, at):
        place = (at.kv - at.q + count // 2).clamp(0, count - 1)[0, 0]
        return s + weights[:, bucket.clamp(0, 8)[place]][None]

    groups = (torch.arange(CASE.len_q, device=DEVICE) // 8).clamp(max=3)
    run(variant, CASE, logits=logits, mask=lambda at: visible[:, groups][:, None])


def test_other_extents_run_the_same_kernel():
    variant = jit.Variant("any", tensors={"t": "bf16[*, *]"}, logits="logit * t(h % 3, kv % 5)")
    compiles = []
    for shape in ((3, 5), (1, 1), (2, 7)):
        t = randn(shape, torch.bfloat16, 6)

        def logits(s, at, t=t):
            rows = (at.h % 3).clamp(max=t.shape[0] - 1)
            return s * t.to(s.dtype)[rows, (at.kv % 5).clamp(max=t.shape[1] - 1)]

        run(variant(t=t), CASE, logits=logits)
        compiles.append(kiln.stats()["compiles"])
    assert len(set(compiles)) == 1


def test_a_table_in_a_template_file(tmp_path):
    path = tmp_path / "table.cuh"
    path.write_text("""
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTransformsLogits = true;
  kiln::VariantTable<kiln::u8, 1> steps;
  __device__ float logits(float logit, const kiln::Position& at) const {
    return logit + 0.25f * steps.at(at.kv - 2) + steps(at.h);
  }
};
""")
    variant = jit.Variant("steps", tensors={"steps": "u8[*]"}, file=path)
    steps = torch.arange(1, 8, dtype=torch.uint8, device=DEVICE)

    def logits(s, at):
        return s + 0.25 * steps[(at.kv - 2).clamp(0, 6)] + steps[at.h]

    run(variant(steps=steps), CASE, logits=logits)


def test_a_table_for_sequences_in_a_cache():
    """Decode from pages: the sequences' lengths are known to the kernel alone."""
    variant = jit.Variant(
        "doc", tensors={"doc": "i32[b, *]"}, mask="doc(b, kv) == doc(b, q)", logits="2 * logit"
    )
    lengths = torch.tensor([70, 33], dtype=torch.int32, device=DEVICE)
    doc = torch.arange(96, device=DEVICE, dtype=torch.int32) // 16 % 3
    doc = torch.stack([doc, doc.flip(0)])
    q = randn([2, 1, 4, 64], torch.float16, 7)
    k, v = randn([12, 16, 2, 64], torch.float16, 8), randn([12, 16, 2, 64], torch.float16, 9)
    pages = torch.arange(12, dtype=torch.int32, device=DEVICE).flip(0).reshape(2, 6)
    out = jit.flash_attention_with_kvcache(
        q, k, v, cache_seqlens=lengths, block_table=pages, causal=True, variant=variant(doc=doc)
    )
    for entry, length in enumerate(lengths.tolist()):
        keys, values = (x[pages[entry].long()].flatten(0, 1)[:length].double() for x in (k, v))
        logits = torch.einsum("hd,khd->hk", q[entry, 0].double(), keys.repeat_interleave(2, 1)) * (
            2 * 64**-0.5
        )
        logits[:, doc[entry, :length] != doc[entry, length - 1]] = -torch.inf
        expected = torch.einsum("hk,khd->hd", logits.softmax(-1), values.repeat_interleave(2, 1))
        assert (out[entry, 0].double() - expected).abs().max() < 3e-3


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ("logit + t(h)", "a table needs one index for each dimension"),
        ("logit + t(h, 0.5)", "the indices of a table must be whole numbers: write int(x)"),
    ],
)
def test_wrong_indices_are_told(logits, said):
    variant = jit.Variant("wrong", tensors={"t": "f32[*, 4]"}, logits=logits)
    q, k, v = CASE.inputs()
    with pytest.raises(kiln.CompileError, match="variant logits") as caught:
        jit.flash_attention(q, k, v, variant=variant(t=torch.ones(2, 4, device=DEVICE)))
    assert said in str(caught.value)
