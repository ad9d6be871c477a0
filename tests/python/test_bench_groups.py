"""The suite groups of bench/ without a GPU: its cells, what its peers are asked to compute by fakes
of them, and tiny cells on the emulated device."""

import importlib.machinery
import sys
import types

import exact
import grids
import group_cells
import group_suite
import grouped_inputs
import kiln
import measure
import moe_layer
import pytest
import torch
from group_cells import BLOCKS, GroupCell, LayerCell
from torch.nn import functional

CEILINGS = {"bytes_per_s": 4e12, "flops_per_s": {"bf16": 790e12, BLOCKS: 1500e12}}
UNEVEN = (5, 0, 130, 9)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    for module in (grouped_inputs, group_suite, moe_layer):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    for module in (group_suite, moe_layer):
        monkeypatch.setattr(module, "set_count", lambda size: 2)
    for name in ("deep_gemm", "vllm"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def install(monkeypatch):
    def put(name, **members):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def inputs_of(cell):
    generator = torch.Generator().manual_seed(1)
    make = moe_layer.Layer if isinstance(cell, LayerCell) else grouped_inputs.Inputs
    return [make(cell, generator) for _ in range(2)]


def check(contender, inputs, dtype):
    """Of the second set of inputs first, as measuring does it."""
    for index in (1, 0):
        exact.judge(contender.view(contender.call(index)), inputs[index].truth(), dtype)


def missing(maker, cell):
    with pytest.raises(measure.Unavailable) as caught:
        maker(cell, inputs_of(cell))
    return str(caught.value)


def test_the_issues_cells_are_in_the_short_form():
    short = [cell for (cell,) in grids.grid("groups", short=True)]
    assert [cell.name for cell in short] == list(group_cells.SHORT)
    even = {cell.dtype for cell in short if getattr(cell, "sizes", 0) == (8192,) * 4}
    masked = {cell.dtype for cell in short if getattr(cell, "capacity", 0)}
    assert even == masked == {"bf16", BLOCKS}
    assert max(cell.stored_bytes for (cell,) in grids.grid("groups")) < 24e9


def test_uneven_sizes_are_those_of_a_router():
    for tokens, top_k, experts in ((4096, 8, 256), (64, 6, 64), (1, 8, 256)):
        sizes = group_cells.routed(tokens, top_k, experts)
        assert len(sizes) == experts and sum(sizes) == tokens * top_k
        assert max(sizes) <= tokens  # nobody goes to one expert twice
    many = group_cells.routed(4096, 8, 256)
    assert max(many) > 3 * 128 and 0 < min(many) < 128 / 3
    assert 0 in group_cells.routed(64, 8, 256)
    assert set(group_cells.about(500, 12, 28)) == set(range(12, 29))


def test_work_and_traffic_of_a_product():
    cell = GroupCell((3, 0, 2), 256, 512)
    assert cell.flops == 2 * 5 * 256 * 512
    assert cell.bytes == 2 * (2 * 256 * 512 + 5 * (256 + 512)) + 4 * 3
    assert cell.stored_bytes == 2 * (3 * 256 * 512 + 5 * (256 + 512))
    room = GroupCell((3, 0, 2), 256, 512, capacity=8)
    assert (room.flops, room.bytes) == (cell.flops, cell.bytes)
    assert room.stored_bytes == 2 * (3 * 256 * 512 + 24 * (256 + 512))
    blocks = GroupCell((3, 0, 2), 256, 512, BLOCKS)
    scales = 4 * (2 * 2 * 4 + 5 * 4)
    assert blocks.bytes == 2 * 256 * 512 + 5 * (512 + 2 * 256) + 4 * 3 + scales


def test_work_and_traffic_of_a_layer():
    one = LayerCell(1, 64, 8, 256, 128)
    assert one.flops == 2 * 8 * 3 * 256 * 128
    assert one.used == 8 and one.bytes == 8 * 3 * 256 * 128 * 2 + 4 * 256 + 4 * 64
    assert LayerCell(4096, 64, 8, 256, 128).used == 64
    assert LayerCell(64, 256, 8, 256, 128).used == 222
    assert one.stored_bytes > 64 * 3 * 256 * 128 * 2
    blocks = LayerCell(1, 64, 8, 256, 128, BLOCKS)
    assert blocks.bytes == 8 * 3 * (256 * 128 + 4 * 2) + 4 * 256 + 4 * 64


@pytest.mark.parametrize("capacity", [0, 144])
def test_what_pytorch_is_asked_to_compute(capacity):
    cell = GroupCell(UNEVEN, 64, 96, capacity=capacity)
    inputs = inputs_of(cell)
    check(group_suite.loop(cell, inputs), inputs, "bf16")
    if capacity:
        assert "no counts" in missing(group_suite.grouped_mm, cell)
    else:
        check(group_suite.grouped_mm(cell, inputs), inputs, "bf16")
    blocks = GroupCell(UNEVEN, 64, 128, BLOCKS, capacity=capacity)
    assert "scales" in missing(group_suite.loop, blocks)
    assert "scales" in missing(group_suite.grouped_mm, blocks)
    assert "DeepGEMM is not installed" in missing(group_suite.deep_gemm, cell)


def floats(operand, rows):
    if not isinstance(operand, tuple):
        return operand.float()
    values, scale = operand
    if rows == 1:
        assert scale.stride(-2) == 1 and scale.stride(-1) % 4 == 0
    wide = scale.repeat_interleave(rows, -2).repeat_interleave(128, -1)
    return values.float() * wide[..., : values.shape[-2], : values.shape[-1]]


def contiguous(a, b, out, groups):
    """As DeepGEMM's: each 16 rows are of one group, or padding behind its rows."""
    rows, matrices = floats(a, 1), floats(b, 128)
    assert len(rows) == len(out) == len(groups) and len(rows) % 16 == 0
    for part in groups.view(-1, 16):
        assert len(set(part.tolist()) - {-1}) == 1
    for row, group in enumerate(groups.tolist()):
        out[row] = rows[row] @ matrices[group].mT if group >= 0 else 7


def masked(a, b, out, counts, expected):
    assert expected == 20
    rows, matrices = floats(a, 1), floats(b, 128)
    for group, count in enumerate(counts.tolist()):
        out[group, :count] = rows[group, :count] @ matrices[group].mT


@pytest.mark.parametrize("dtype", ["bf16", BLOCKS])
def test_deep_gemm_gets_rows_as_it_wants_them(install, dtype):
    kind = "fp8" if dtype == BLOCKS else "bf16"
    install("deep_gemm", **{
        f"m_grouped_{kind}_gemm_nt_contiguous": contiguous,
        f"m_grouped_{kind}_gemm_nt_masked": masked,
        "utils": types.SimpleNamespace(get_mk_alignment_for_contiguous_layout=lambda: 16),
    })  # fmt: skip
    for more in ({}, {"capacity": 130, "expected_rows": 20}):
        cell = GroupCell(UNEVEN, 128, 256, dtype, **more)
        inputs = inputs_of(cell)
        check(group_suite.deep_gemm(cell, inputs), inputs, dtype)
    install("deep_gemm")
    assert f"has no m_grouped_{kind}_gemm_nt_masked" in missing(group_suite.deep_gemm, cell)
    assert group_suite.alignment(sys.modules["deep_gemm"]) == 128


LAYERS = [LayerCell(6, 5, 2, 64, 48), LayerCell(6, 5, 2, 256, 128, BLOCKS)]


def test_what_pytorch_makes_of_a_layer():
    inputs = inputs_of(LAYERS[0])
    for make in (moe_layer.loop, moe_layer.grouped_mm):
        check(make(LAYERS[0], inputs), inputs, "bf16")
        assert "scales of blocks" in missing(make, LAYERS[1])
    assert "are not installed" in missing(moe_layer.vllm, LAYERS[0])


def fused_topk(x, logits, top_k, renormalize):
    assert renormalize
    values, experts = logits.topk(top_k)
    return values.softmax(-1), experts.int(), None


def fused_experts(x, up, down, weights, experts, quant_config=None):
    """As vLLM's, which rounds to bf16 between the products."""
    scales = quant_config or {"w1_scale": None, "w2_scale": None, "block_shape": [128, 128]}
    assert scales["block_shape"] == [128, 128]

    def product(rows, matrix, scale):
        if scale is None:
            return (rows.float() @ matrix.float().mT).bfloat16()
        return (moe_layer._rounded(rows) @ floats((matrix, scale), 128).mT).bfloat16()

    out = torch.zeros_like(x)
    for token, choice in torch.cartesian_prod(*map(torch.arange, experts.shape)).tolist():
        e = int(experts[token, choice])
        first, second = (None if quant_config is None else scales[name][e]
                         for name in ("w1_scale", "w2_scale"))  # fmt: skip
        gate, part = product(x[token][None], up[e], first).chunk(2, -1)
        result = product(functional.silu(gate) * part, down[e], second)[0]
        out[token] += result * weights[token, choice]
    return out


@pytest.mark.parametrize("cell", LAYERS, ids=lambda cell: cell.dtype)
def test_vllm_gets_the_layers_operands(install, cell):
    layers = "vllm.model_executor.layers"
    for name in ("vllm", "vllm.model_executor", layers):
        install(name)
    install(f"{layers}.fused_moe", fused_topk=fused_topk, fused_experts=fused_experts)
    install(f"{layers}.fused_moe.config", fp8_w8a8_moe_quant_config=dict)
    inputs = inputs_of(cell)
    check(moe_layer.vllm(cell, inputs), inputs, moe_layer.LIMITS.get(cell.dtype, cell.dtype))


def turns(calls, seconds, sets, halfway):
    for index in range(sets):
        for call in calls.values():
            call(index)
    return {name: [10.0] * 4 for name in calls}


@pytest.mark.parametrize(
    "cell",
    [
        GroupCell(UNEVEN, 64, 256, title="offsets"),
        GroupCell((130, 140), 256, 256, BLOCKS, 144, 135, title="counts"),
        *LAYERS,
    ],
    ids=lambda cell: cell.name,
)
def test_tiny_cells_on_the_emulated_device(cell):
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        made = group_suite.entries([cell], True)
        (found,) = measure.measure(made, 1, CEILINGS, turns=turns)
    assert found["failed"] is None and found["input_sets"] == 2
    assert found["config"]["path"] == "sm_90a"
    if cell.dtype == "bf16":
        assert {"grouped_mm", "loop"} <= set(found["times"])
    if isinstance(cell, GroupCell) and cell.capacity:
        assert "dense" in found["times"]
