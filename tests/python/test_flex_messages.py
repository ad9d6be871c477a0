"""What jit.flex_attention refuses, in words; and what its traces keep."""

import gc
import os
import subprocess
import sys
import warnings
import weakref

import kiln
import pytest
import torch
from kiln import jit
from kiln.flex.blocks import tables_of
from kiln.flex.plan import bound_variant
from kiln.flex.reads import reads_of
from kiln.flex.text import expression
from kiln.flex.trace import trace
from message_page import check
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask

Q = torch.zeros(1, 4, 16, 64, dtype=torch.float16)
WIDE = torch.zeros(3, 7)
TABLE, PARAMETER = torch.zeros(3, 5), torch.nn.Parameter(torch.zeros(4))
MANY = [torch.zeros(2) for _ in range(9)]


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


MASK = create_block_mask(causal, None, None, 16, 16, device="cpu")


def call(score_mod=None, block_mask=None, q=Q, k=Q, **options):
    return jit.flex_attention(q, k, k, score_mod, block_mask, **options)


def scored(function):
    return lambda: call(lambda score, b, h, q_idx, kv_idx: function(score, q_idx, kv_idx))


CALLS = [
    (scored(lambda s, q, kv: s if q > kv else 0.0), TypeError, "score_mod needs the value of what "
     "gt() returns in Python, which exists only inside the kernel; use torch.where() instead"),
    (scored(lambda s, q, kv: s * float(q)), TypeError, "needs the value of q_idx in Python"),
    (scored(lambda s, q, kv: s * TABLE[q, kv].item()), TypeError, "the value of an element of a t"),
    (scored(lambda s, q, kv: torch.cumsum(s, 0)), TypeError, "score_mod calls cumsum(), which is"),
    (scored(lambda s, q, kv: s.unfold(0, 1, 1)), TypeError, "uses .unfold of the score, which is"),
    (scored(lambda s, q, kv: s + TABLE), TypeError, "with a tensor of shape [3, 5]; index every d"),
    (scored(lambda s, q, kv: s + TABLE[q]), TypeError, "must return a scalar tensor, got one of s"),
    (scored(lambda s, q, kv: (TABLE[q] + WIDE[q]).sum()), TypeError, "tensors of 5 and 7 elements"),
    (scored(lambda s, q, kv: torch.dot(TABLE[q], WIDE[q])), TypeError, "they must have the same l"),
    (scored(lambda s, q, kv: s + (TABLE[q] * s)[1]), TypeError, "indexes a computed tensor of sha"),
    (scored(lambda s, q, kv: s + TABLE[q].max(dim=0)), TypeError, "two results; call amax()"),
    (scored(lambda s, q, kv: s + torch.sum(TABLE[q], 1)), TypeError, "of shape [5], dim 1;"),
    (scored(lambda s, q, kv: s + WIDE[TABLE[q].int()]), TypeError, "[3, 7] by one of 5 elements;"),
    (scored(lambda s, q, kv: s + TABLE[q].int().mean()), TypeError, "of torch.int32; convert it w"),
    (scored(lambda s, q, kv: s + TABLE[q].unsqueeze(0)), TypeError, "unsqueeze() of what has a d"),
    (scored(lambda s, q, kv: torch.isin(TABLE[q], WIDE[q])), TypeError, "isin() of what has a di"),
    (scored(lambda s, q, kv: torch.stack([s, TABLE[q]])), TypeError, "calls stack() of what has "
     "a dimension; join scalar tensors alone"),
    (scored(lambda s, q, kv: s + torch.stack([s, s])), TypeError, "scalar tensor, got one of"),
    (scored(lambda s, q, kv: torch.stack([s, s])[q]), TypeError, "indexes a computed tensor of"),
    (scored(lambda s, q, kv: (torch.stack([s, s]) * WIDE[q]).sum()), TypeError, "of 2 and 7 elem"),
    (scored(lambda s, q, kv: TABLE[s, 0]), TypeError, "indexes a tensor of shape [3, 5] by torch."),
    (scored(lambda s, q, kv: TABLE[q, 1:]), TypeError, "every index must be a whole number"),
    (scored(lambda s, q, kv: TABLE[q, 5]), IndexError, "score_mod reads index 5 of dimension 1 of"),
    (scored(lambda s, q, kv: TABLE[q, 0, 0]), IndexError, "score_mod gives 3 indices to a tensor"),
    (scored(lambda s, q, kv: s[0]), TypeError, "score_mod indexes the score, which is a scalar"),
    (scored(lambda s, q, kv: s + [1][q]), TypeError, "needs the value of q_idx in Python"),
    (scored(lambda s, q, kv: s & 1), TypeError, "calls bitwise_and() with what is not supported: "),
    (scored(lambda s, q, kv: s + "1"), TypeError, "score_mod computes with '1'; a number or a ten"),
    (scored(lambda s, q, kv: s.double()), TypeError, "score_mod converts to torch.float64; use fl"),
    (scored(lambda s, q, kv: s + kv * torch.tensor(2, dtype=torch.int16)), TypeError,
     "score_mod converts to torch.int16; use float32, int32, int64 or bool"),
    (scored(lambda s, q, kv: s + q.new_full((), 2, dtype=torch.int8)), TypeError,
     "score_mod converts to torch.int8; use fl"),
    (scored(lambda s, q, kv: s + TABLE.double()[q, 0]), TypeError, "reads a tensor of torch.float"),
    (scored(lambda s, q, kv: s + (q < 2**40)), TypeError, "uses the whole number 1099511627776, w"),
    (scored(lambda s, q, kv: s.new_full((2,), 1)), TypeError, "makes a tensor of shape [2]; only "),
    (scored(lambda s, q, kv: s + torch.zeros(1, 1, 1, 1, 1, 1)[q, 0, 0, 0, 0, 0]), TypeError,
     "reads a tensor of 6 dimensions; at most 5 are read"),
    (scored(lambda s, q, kv: (s, q)), TypeError, "score_mod must return a scalar tensor, got tupl"),
    (lambda: call(lambda s, q, kv: s), TypeError, "score_mod must take (score, b, h, q_idx, "
     "kv_idx), got one that takes (s, q, kv)"),
    (lambda: call(mask_mod=lambda q, kv: q >= kv), TypeError, "mask_mod must take (b, h, q_idx, "),
    (scored(lambda s, q, kv: s + PARAMETER[0]), ValueError, "a tensor that score_mod or mask_mod "
     "reads requires grad, and Kiln computes the forward pass only"),
    (scored(lambda s, q, kv: s + sum(t[0] for t in MANY)), TypeError, "read 9 tensors, and at mos"),
    (lambda: call(mask_mod=lambda b, h, q, kv: q - kv), TypeError, "mask_mod must return a bool, "),
    (lambda: call(3), TypeError, "score_mod must be callable, got int"),
    (lambda: call(None, causal), TypeError, "block_mask must be a BlockMask, got function; make o"),
    (lambda: call(None, MASK, mask_mod=causal), ValueError, "block_mask has a mask_mod of its own"),
    (lambda: call(None, MASK, k=Q[:, :, :9]), ValueError, "was made for lengths (16, 16), and que"),
    (lambda: call(None, MASK[0:0]), ValueError, "block_mask must have the batch of query, 1, or 1"),
    (lambda: call(None, MASK.to("meta")), ValueError, "block_mask is on meta and query on cpu; pa"),
    (lambda: call(k=Q[:, :2]), ValueError, "query and key must have the same number of heads, got"),
    (lambda: call(k=Q[:, :3], enable_gqa=True), ValueError, "heads of query must be a multiple of"),
    (lambda: call(k=Q.expand(2, -1, -1, -1)), ValueError, "key must have the batch of query, 1, o"),
    (lambda: call(q=Q[0]), ValueError, "query must have 4 dimensions, [batch, heads, length, head"),
    (lambda: call(q=Q.numpy()), TypeError, "query must be a torch.Tensor, got ndarray; jit.flash_"),
    (lambda: call(return_lse=True, return_aux=AuxRequest()), ValueError, "ask for the same result"),
    (lambda: call(return_aux={"lse": True}), TypeError, "return_aux must be an AuxRequest of torch."
     "nn.attention.flex_attention, such as AuxRequest(lse=True), got {'lse': True}"),
    (lambda: call(return_aux=True), TypeError, "such as AuxRequest(lse=True), got True"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_messages(number):
    provoked, kind, text = CALLS[number]
    with kiln.no_compile(), pytest.raises(kind) as error:
        provoked()
    assert str(error.value).startswith("flex_attention: ")
    check(error.value, kind, text)


def test_warnings_come_once():
    options = {"kernel_options": {"BLOCK_M": 64}, "return_lse": True}
    with kiln.device("emulator:sm_80"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out, lse = call(**options)
        call(**options)
    assert out.shape == Q.shape and lse.shape == Q.shape[:3]
    assert [warning.category for warning in caught] == [FutureWarning, UserWarning]
    line = call.__code__.co_firstlineno + 1
    assert all((warning.filename, warning.lineno) == (__file__, line) for warning in caught)


def traced(score_mod=None, mask_mod=None):
    reads = reads_of(score_mod, mask_mod)
    return trace(score_mod, mask_mod, reads.numbers_in_code()), reads


def test_a_mask_is_a_plain_expression():
    size = 100
    found, _ = traced(None, lambda b, h, q, kv: (q - kv < size) & (kv <= q) & (kv // 3 % 2 == 0))
    text = expression(found.mask)
    assert text == "((((row - kv) < p0) & (kv <= row)) & (((kv / 3) % 2) == 0))"
    found, _ = traced(lambda s, b, h, q, kv: torch.where(q >= kv, s, -float("inf")))
    assert (found.logits, expression(found.mask)) == (None, "(row >= kv)")


def test_scalars_of_float64_are_float32():
    wide = torch.float64
    for made in (
        lambda s, b, h, q, kv: s + torch.tensor(2, dtype=wide) * kv,
        lambda s, b, h, q, kv: s + q.new_full((), 2, dtype=wide) * kv,
        lambda s, b, h, q, kv: s + s.new_zeros((), dtype=wide) + 2.0 * kv,
    ):
        assert "static_cast<float>(kv)" in expression(traced(made)[0].logits)


def test_what_a_trace_may_be_kept_for():
    """A trace is kept where everything that its callable reads can be compared."""

    class Model:
        reach = 3

        def mask_mod(self, b, h, q_idx, kv_idx):
            return q_idx < self.reach

    helper = {"reach": [1, 2.5]}
    table, model = torch.zeros(4), Model()
    kept = lambda b, h, q, kv: (q < helper["reach"][0]) & (table[q] > table.size(0))  # noqa: E731
    found, reads = traced(None, kept)
    assert reads.is_stable and not found.tracer.computes
    assert reads.tensors == [table]
    assert not traced(None, model.mask_mod)[1].is_stable
    assert not traced(None, lambda b, h, q, kv: q < model.reach)[1].is_stable
    assert traced(None, lambda b, h, q, kv: q < (table * 2)[kv])[0].tracer.computes
    first = bound_variant(None, kept)
    helper["reach"][0] = 7
    assert bound_variant(None, kept).__getstate__()[1]["p0"] == 7
    assert first.__getstate__()[1]["p0"] == 1


def test_a_long_computation_is_not_written_out():
    def score_mod(score, b, h, q_idx, kv_idx):
        for _ in range(60):
            score = score * score + torch.sigmoid(score)
        return score

    assert len(expression(traced(score_mod)[0].logits)) < 10000


def test_a_kept_trace_does_not_keep_tensors():
    tables = [torch.zeros(4)]

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + tables[0][h]

    first = bound_variant(score_mod, None)
    assert bound_variant(score_mod, None) is first
    tables[0].data = torch.ones(4)
    second = bound_variant(score_mod, None)
    assert second is not first
    dead = weakref.ref(second.__getstate__()[1]["t0"])
    del first, second
    gc.collect()
    assert dead() is not None  # the last one is kept
    tables.clear()
    gc.collect()
    assert dead() is None


def test_tables_of_a_block_mask_are_kept_for_the_same_call_alone():
    block_mask = create_block_mask(causal, None, None, 16, 16, device="cpu")
    kept = tables_of(block_mask, Q, Q)
    assert tables_of(block_mask, Q, Q.clone()) is kept
    variant = bound_variant(None, causal, (128, 128), kept)
    assert bound_variant(None, causal, (128, 128), kept) is variant
    with pytest.raises(ValueError, match="was made for lengths"):
        tables_of(block_mask, Q, Q[:, :, :9])
    block_mask.kv_num_blocks.zero_()
    written = tables_of(block_mask, Q, Q)
    assert written is not kept and not written["blocks"].equal(kept["blocks"])
    assert bound_variant(None, causal, (128, 128), written) is not variant
    dead = weakref.ref(written["blocks"])
    del block_mask, written, kept, variant
    gc.collect()
    assert dead() is None


def test_no_call_imports_the_compiler_of_pytorch():
    """The import takes seconds of a first call."""
    script = """
import sys, torch
from kiln import jit
q = torch.randn(1, 2, 16, 64).half()
jit.flex_attention(q, q, q, lambda s, b, h, i, j: s * 2, mask_mod=lambda b, h, i, j: i >= j)
print("torch._dynamo" in sys.modules)
"""
    environment = {**os.environ, "KILN_DEVICE": "emulator:sm_80"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_a_compiled_function_breaks_its_graph_there():
    """And reads what is captured at every call."""
    scale = 2.0

    def scaled(score, b, h, q_idx, kv_idx):
        return score * scale

    def function(q):
        return jit.flex_attention(q.neg(), q, q, scaled, MASK).abs()

    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append([node.name for node in graph.graph.nodes])
        return graph.forward

    q = torch.randn(1, 4, 16, 64).half()
    with kiln.device("emulator:sm_80"):
        compiled = torch.compile(function, backend=backend)
        assert torch.equal(compiled(q), function(q))
        scale = 0.5
        assert torch.equal(compiled(q), function(q))
    assert len(graphs) == 2 and "neg" in graphs[0] and "abs_1" in graphs[1], graphs
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="disable"):
        torch.compile(function, backend=backend, fullgraph=True)(q)
