"""Kernels of sm_90a whose masks read elements of tensors, as those of documents do: what they
spill, and which of them read closely, see reads_closely() of jit/attention/render_sm90.cpp."""

import json

import kiln
import pytest
from kiln import variants

SPEC = {
    "op": "flash_attention", "dtype": "bfloat16", "head_dim": 64, "mask": "none", "splits": False,
}  # fmt: skip

SAME = {"tensors": [["mine", "i32[b, q]"], ["its", "i32[b, kv]"]]}
TABLE = {"tensors": [["doc", "i32[*]"]]}
# Masks that read elements: as variants.documents does, in one expression, and of a table.
READS = {
    "documents": {**SAME, "mask": "mine == its"},
    "expression": {**SAME, "mask": "kv <= q && mine == its"},
    "table": {**TABLE, "mask": "kv <= q && doc(q) == doc(kv)"},
    "flags": {"tensors": [["seen", "bool[b, kv]"]], "mask": "kv <= q && seen"},
}


def kernel_that_reads(name, head_dim, tile, mask="none"):
    """`tile`: 192x128x2, as explain() has it."""
    block_q, block_kv, stages = (int(size) for size in tile.split("x"))
    sizes = {"block_q": block_q, "block_kv": block_kv, "stages": stages}
    spec = {**SPEC, "head_dim": head_dim, "mask": mask, **sizes}
    (kernel,) = kiln.inspect({**spec, "variant": {"name": "mine", **READS[name]}}, "sm_90a")
    return kernel


@pytest.mark.takes_turns(3)
@pytest.mark.parametrize(
    "name, head_dim, tile, mask",
    [
        ("documents", 64, "192x128x2", "causal"),
        ("expression", 64, "192x128x2", "none"),
        ("expression", 64, "192x128x2", "causal"),
        ("table", 64, "192x128x2", "none"),
        ("table", 96, "192x80x2", "none"),
        ("table", 128, "192x64x2", "none"),
        ("table", 128, "192x64x2", "window"),
        ("table", 128, "192x80x2", "causal"),
        ("table", 128, "128x128x2", "none"),
        ("expression", 128, "128x128x2", "causal"),
    ],
)
def test_masks_that_read_elements_spill_nothing(name, head_dim, tile, mask):
    """They spilled up to 568 bytes."""
    kernel = kernel_that_reads(name, head_dim, tile, mask)
    assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]


@pytest.mark.parametrize(
    "logits, closely", [("", True), ("logit * mine", False)], ids=["mask", "logits"]
)
def test_masks_alone_read_elements_closely(logits, closely):
    """Code at every logit would read ahead for tiles that the mask shows whole."""
    variant = {"name": "mine", **READS["documents"], **({"logits": logits} if logits else {})}
    kernels = kiln.inspect({**SPEC, "variant": variant}, "sm_90a", compile=False)
    sources = [kernel["source"] for kernel in kernels if kernel["path"] == "sm_90a"]
    assert {"WideProduct" in source for source in sources} == {closely}


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("head_dim, stages", [(64, 3), (96, 2), (128, 2)])
def test_block_masks_of_documents_spill_nothing(head_dim, stages):
    """With a head dim of 96 they spilled 20 bytes."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    from kiln.flex.blocks import tables_of
    from kiln.flex.plan import bound_variant

    ids = torch.zeros(2, 256, dtype=torch.int32)

    def in_document(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (ids[b, q_idx] == ids[b, kv_idx])

    mask = flex.create_block_mask(in_document, 2, None, 256, 256, device="cpu")
    q = torch.zeros(2, 1, 256, head_dim, dtype=torch.bfloat16)
    bound = bound_variant(None, in_document, (128, 128), tables_of(mask, q, q))
    variant, _ = bound.__getstate__()
    spec = {**SPEC, "head_dim": head_dim, "variant": json.loads(variant.__getstate__()[0])}
    spec |= {"block_q": 192, "block_kv": 64, "stages": stages}
    (kernel,) = kiln.inspect(spec, "sm_90a")
    assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]
    assert "WideProduct" in kernel["source"]


@pytest.mark.parametrize(
    "mask, text",
    [
        ("kv <= q && doc(q) == doc( kv )", "kv <= q && doc_at_q == doc_at_kv"),
        ("kv <= q && (doc (at.q) == doc(kv))", "kv <= q && (doc_at_q == doc_at_kv)"),
        ("kv > q || 2>doc(kv)", "kv > q || 2>doc_at_kv"),
        (
            "kv <= q && doc(kv) > doc_at_kv",
            "kv <= q && doc_at_kv_ > doc_at_kv",
        ),  # a parameter's name
        ("kv <= q && doc(kv) == doc(kv / 2)", "kv <= q && doc_at_kv == doc(kv / 2)"),
        ("kv <= q && doc(kv) == min(doc(q), 3)", "kv <= q && doc_at_kv == min(doc_at_q, 3)"),
        (
            "kv <= q && doc(kv) == arguments.doc(q)",
            "kv <= q && doc_at_kv == arguments.doc(q)",
        ),
    ],
)
def test_elements_of_tables_have_names_ahead_of_conditions(mask, text):
    mine = {"name": "mine", **TABLE, "params": [["doc_at_kv", "i32"]], "mask": mask}
    if "> doc_at_kv" not in mask:
        del mine["params"]
    spec = {**SPEC, "block_q": 192, "block_kv": 128}
    (kernel,) = kiln.inspect({**spec, "variant": mine}, "sm_90a", compile=False)
    assert f"\n{text}\n" in kernel["source"]


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("tile", ["128x128x2", "192x80x2"])
def test_biases_in_causal_documents_spill_nothing(tile):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    bias, _ = variants.relative_bias(torch.zeros(1, 257)).__getstate__()
    block_q, block_kv, stages = (int(size) for size in tile.split("x"))
    both = [json.loads(bias.__getstate__()[0]), {"name": "mine", **READS["documents"]}]
    sizes = {"block_q": block_q, "block_kv": block_kv, "stages": stages}
    spec = {**SPEC, "head_dim": 128, "mask": "causal", **sizes, "variant": both}
    (kernel,) = kiln.inspect(spec, "sm_90a")
    assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]
