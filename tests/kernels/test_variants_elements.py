"""Masks that read elements of tensors at positions: a launch ahead of attention finds the least and
the greatest of each 64 elements, so that tiles are skipped and shown whole by them."""

import math

import kiln
import pytest
import torch
from attention_case import AttentionCase
from grid import by_device, sized
from kiln import jit
from storage import DEVICE
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")

LENGTH = sized(small=300, full=1100)
# Tiles enough that no two blocks share the keys of one.
HEADS = by_device(
    gpu=sized(small=dict(heads=35, heads_kv=5), full=dict(heads=64, heads_kv=16)),
    emulator=dict(heads=6, heads_kv=2),
)
DOCUMENTS = jit.Variant("documents", tensors={"doc": "i64[*, *]"}, mask="doc(b, q) == doc(b, kv)")
SAME = {"mine": "i32[b, q]", "its": "i32[b, kv]"}


def of(elements, places):
    """Elements [batch, position] or [position] at the queries' or at the keys' places."""
    elements = elements.expand(1, -1) if elements.ndim == 1 else elements
    return elements[:, places.flatten()].reshape(-1, 1, *places.shape[-2:])


# Of each mask: its words, the dtypes of its tensors, and the pairs that it shows.
MASKS = {
    "elements": (dict(tensors=SAME, mask="mine == its"), torch.int32,
                 lambda e, at: of(e["mine"], at.q) == of(e["its"], at.kv)),
    "flags": (dict(tensors={"seen": "bool[b, kv]"}, mask="kv <= q && seen"), torch.bool,
              lambda e, at: (at.kv <= at.q) & of(e["seen"], at.kv)),
    "bytes of rows": (dict(tensors={"kind": "u8[b, row]"}, mask="kind == 1 || kv <= q"),
                      torch.uint8,
                      lambda e, at: (of(e["kind"], at.row) == 1) | (at.kv <= at.q)),
    "shared": (dict(tensors={"doc": "i64[*]"}, mask="doc(row) >= doc(kv) && doc(kv) > 0"),
               torch.int64,
               lambda e, at: (of(e["doc"], at.row) >= of(e["doc"], at.kv))
               & (of(e["doc"], at.kv) > 0)),
    "of one line": (dict(tensors={"doc": "i32[*, *]"}, mask="kv <= q && doc(1, q) == doc(1, kv)"),
                    torch.int32,
                    lambda e, at: (at.kv <= at.q)
                    & (of(e["doc"][1], at.q) == of(e["doc"][1], at.kv))),
    # Two numbers and the entry: bounds, and names, of their own.
    "of lines": (dict(tensors={"doc": "i32[*, *]"},
                      mask="doc(1, q) == doc(9, kv) || doc(0, kv) == doc(b, kv) && doc(0, q) > 1"),
                 torch.int32,
                 lambda e, at: (of(e["doc"][1], at.q) == of(e["doc"][1], at.kv))
                 | (of(e["doc"][0], at.kv) == of(e["doc"], at.kv)) & (of(e["doc"][0], at.q) > 1)),
    # Nothing is known over tiles of elements that lie elsewhere. They hide all the same.
    "elsewhere": (dict(tensors={"doc": "i32[*]"}, mask="kv <= q && doc(kv / 2) > 1"), torch.int32,
                  lambda e, at: (at.kv <= at.q) & (of(e["doc"], at.kv // 2) > 1)),
    "elsewhere in rows": (dict(tensors={"doc": "i32[*]"},
                               mask="doc(row / 2 + 3) <= doc(kv) && row + 9 >= kv"), torch.int32,
                          lambda e, at: (of(e["doc"], at.row // 2 + 3) <= of(e["doc"], at.kv))
                          & (at.row + 9 >= at.kv)),
}  # fmt: skip


def runs(count, most, dtype, generator):
    """Runs of equal numbers, in no order."""
    numbers = torch.randint(0, most, (count // 40 + 1,), generator=generator)
    places = torch.randint(0, len(numbers), (count,), generator=generator).sort().values
    return numbers[places].to(dtype).to(DEVICE)


def on_hopper(name):
    """Tells whether a mask is tested with HEADS."""
    return name == "elements" or name.startswith(("elsewhere", "of "))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.few_multiprocessors] if on_hopper(name) else [])
        for name in MASKS
    ],
)
def test_tiles_follow_from_elements(name):
    words, dtype, shows = MASKS[name]
    generator = torch.Generator().manual_seed(len(name))
    variant = jit.Variant(name.replace(" ", "_"), **words)
    bound = {}
    for tensor, declared in words["tensors"].items():
        lines = [runs(LENGTH, 5, dtype, generator) for _ in range(2)]
        bound[tensor] = torch.stack(lines) if "," in declared else lines[0]
    heads = HEADS if on_hopper(name) else dict(heads=4, heads_kv=2)
    case = AttentionCase(batch=2, len_q=LENGTH, len_kv=LENGTH, **heads)
    run(variant(**bound), case, mask=lambda at: shows(bound, at))


def test_elements_are_read_anew_at_every_call():
    """The same tensor, with other numbers and other strides, and less memory than a first call."""
    doc = torch.zeros(2, 2 * LENGTH, dtype=torch.int64, device=DEVICE)
    bound = DOCUMENTS(doc=doc[:, ::2])
    case = AttentionCase(batch=2, len_q=LENGTH - 41, len_kv=LENGTH, heads=4, heads_kv=2)
    for cut in (0, 1, LENGTH - 5):
        doc[:, ::2] = torch.arange(LENGTH, device=DEVICE) >= cut
        doc[1] *= 7
        run(bound, case, mask=lambda at: of(doc, at.q * 2) == of(doc, at.kv * 2))


@pytest.mark.few_multiprocessors
def test_tiles_of_other_elements_are_not_read():
    """Also where the mask has another part, and where few queries see many keys by splits."""
    both = jit.Variant("both", tensors=SAME, params={"w": "i32"}, mask="mine == its && q - kv < w")
    for len_q, heads in ((LENGTH, HEADS), (100, dict(heads=2, heads_kv=1))):
        doc = (torch.arange(LENGTH, device=DEVICE, dtype=torch.int32) // (LENGTH // 2))[None]
        case = AttentionCase(len_q=len_q, len_kv=LENGTH, **heads)
        q, k, v = case.inputs()
        v[:, : LENGTH // 2 - 128] = math.nan
        out = jit.flash_attention(q, k, v, variant=both(mine=doc, its=doc, w=LENGTH))
        assert out[:, -100:].isfinite().all()


def test_explain_names_the_launch_ahead():
    q = torch.zeros(1, LENGTH, 2, 64, dtype=torch.bfloat16, device=DEVICE)
    doc = torch.zeros(1, LENGTH, dtype=torch.int64, device=DEVICE)

    def explained(queries):
        return kiln.explain("flash_attention", queries, q, q, variant=DOCUMENTS(doc=doc))

    told = explained(q)
    assert [launch["path"] for launch in told["launches"]] == ["bounds", told["path"]]
    assert told["workspace_bytes"] >= 8 * -(-LENGTH // 64)
    assert "launches" not in explained(q[:, :63])  # as long as they would save
    specs = [launch["spec"] for launch in told["launches"]]
    assert {"op": "bound_elements"} in specs


@pytest.mark.cuda
def test_a_graph_reads_the_elements_of_each_replay():
    doc = torch.zeros(1, LENGTH, dtype=torch.int64, device=DEVICE)
    case = AttentionCase(len_q=LENGTH, len_kv=LENGTH, **HEADS)
    q, k, v = case.inputs()
    bound = DOCUMENTS(doc=doc)
    jit.flash_attention(q, k, v, causal=True, variant=bound)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = jit.flash_attention(q, k, v, causal=True, variant=bound)
    for cut in (LENGTH // 3, 0, LENGTH // 2):
        doc[:] = torch.arange(LENGTH, device=DEVICE) >= cut
        graph.replay()
        alone = jit.flash_attention(q[:, cut:], k[:, cut:], v[:, cut:], causal=True)
        assert (out[:, cut:].float() - alone.float()).abs().max() < 0.02
