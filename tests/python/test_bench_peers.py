"""Attention's peers with a library of their own, none of which is needed: who is missing and why,
and what a fake of each is asked to compute."""

import importlib.machinery
import sys
import types

import exact
import flash_peers
import machine
import measure
import peers
import pytest
import torch
from cells import AttentionCell
from serving_cells import ServingCell

CELL = AttentionCell(2, 8, 8, 4, 2, 16, True)
WINDOW = AttentionCell(2, 8, 8, 4, 2, 16, True, 3, softcap=5.0, dim_v=8)
LOADER = """
import json, pathlib, torch
HERE = pathlib.Path(__file__).parent

def load(build):
    with open(HERE / "loaded", "a") as record:
        record.write(build + " ")
    return {"ops of": build}

def attention(ops, q, k, v, causal=False, **more):
    (HERE / "asked").write_text(json.dumps([ops, causal, more]))
    return torch.ones(*q.shape[:-1], v.shape[-1])
"""


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch):
    for name in ("flash_attn_interface", "flash_attn", "flashinfer"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv(flash_peers.FA3_FOLDER, raising=False)


@pytest.fixture
def install(monkeypatch):
    def put(name, **members):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def inputs_of(cell):
    q = torch.randn(cell.batch, cell.len_q, cell.heads, cell.dim)
    k, v = (
        torch.randn(cell.batch, cell.len_kv, cell.heads_kv, d) for d in (cell.dim, cell.value_dim)
    )
    return [(q, k, v)]


def missing(maker):
    with pytest.raises(measure.Unavailable) as caught:
        maker(CELL, inputs_of(CELL))
    return str(caught.value)


def test_who_is_not_installed_says_so():
    assert missing(flash_peers.fa3) == (
        "flash_attn_interface is not installed and KILN_BENCH_FA3 is not set"
    )
    assert missing(flash_peers.fa4).startswith("flash-attn-4 is not installed: ")
    assert missing(flash_peers.flashinfer).startswith("FlashInfer is not installed: ")
    assert flash_peers.fa3_build() is None and "FA3" not in machine.versions()


def test_attention_is_measured_beside_all_of_them():
    made = peers.attention(CELL, inputs_of(CELL), flex=False)
    assert {"cuDNN", "FA2", "FA3", "FA4", "FlashInfer", "Triton", "FlexAttention"} == set(made)
    with pytest.raises(measure.Unavailable, match="KILN_BENCH_FA3"):
        made["FA3"]()


def test_a_folder_with_a_loader_is_flash_attention_3(tmp_path, monkeypatch):
    (tmp_path / "fa3.py").write_text(LOADER)
    monkeypatch.setenv("KILN_BENCH_FA3", str(tmp_path))
    for cell in (CELL, WINDOW):
        contender = flash_peers.fa3(cell, inputs_of(cell))
        assert contender.view(contender.call(0)).shape == (2, 8, 4, cell.value_dim)
    assert (tmp_path / "loaded").read_text() == "fa3x "
    assert (tmp_path / "asked").read_text() == (
        '[{"ops of": "fa3x"}, true, {"num_splits": 0, "softcap": 5.0, '
        '"window_size_left": 3, "window_size_right": 0}]'
    )
    assert machine.versions()["FA3"] == f"fa3x of {tmp_path}"


def test_a_folder_without_a_loader_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KILN_BENCH_FA3", str(tmp_path))
    assert missing(flash_peers.fa3) == f"KILN_BENCH_FA3 is {tmp_path}, where there is no fa3.py"


def test_an_installed_flash_attention_3_goes_before_the_folder(tmp_path, monkeypatch, install):
    monkeypatch.setenv("KILN_BENCH_FA3", str(tmp_path))
    install("flash_attn_interface", flash_attn_func=lambda q, k, v, **options: (q, options))
    contender = flash_peers.fa3(WINDOW, [(7, 8, 9)])
    wanted = {"causal": True, "num_splits": 0, "softcap": 5.0, "window_size": (3, 0)}
    assert contender.call(0) == (7, wanted)
    assert contender.view(contender.call(0)) == 7
    assert flash_peers.fa3_build().startswith("flash_attn_interface")


def test_flash_attn_4_names_open_windows_by_none(install):
    install("flash_attn")
    install("flash_attn.cute")
    install("flash_attn.cute.interface", flash_attn_func=lambda q, k, v, **options: (q, options))
    assert flash_peers.fa4(CELL, [(7, 8, 9)]).call(0) == (7, {"causal": True})
    open_after = AttentionCell(2, 8, 8, 4, 2, 16, False, 3)
    _, options = flash_peers.fa4(open_after, [(7, 8, 9)]).call(0)
    assert options == {"causal": False, "window_size": (3, None)}


class RaggedWrapper:
    """As FlashInfer's, by the truth."""

    def __init__(self, workspace, layout):
        assert workspace.dtype == torch.uint8 and layout == "NHD"

    def plan(self, starts_q, starts_kv, heads, heads_kv, dim, **options):
        assert starts_q.dtype == starts_kv.dtype == torch.int32
        batch = len(starts_q) - 1
        len_q, len_kv = (int(starts[-1]) // batch for starts in (starts_q, starts_kv))
        left = options["window_left"]
        self.cell = AttentionCell(
            batch, len_q, len_kv, heads, heads_kv, dim, options["causal"],
            None if left < 0 else left, softcap=options["logits_soft_cap"] or 0.0,
            dim_v=options["head_dim_vo"],
        )  # fmt: skip

    def run(self, *tensors):
        tensors = (x.unflatten(0, (self.cell.batch, -1)) for x in tensors)
        return exact.attention(self.cell, *tensors).flatten(0, 1)


@pytest.mark.parametrize("cell", [CELL, WINDOW, AttentionCell(3, 4, 9, 2, 2, 16)])
def test_flashinfer_is_planned_for_the_cell(install, cell):
    install("flashinfer", BatchPrefillWithRaggedKVCacheWrapper=RaggedWrapper)
    inputs = inputs_of(cell)
    contender = flash_peers.flashinfer(cell, inputs)
    truth = exact.attention(cell, *inputs[0])
    exact.judge(contender.view(contender.call(0)), truth, cell.dtype)


def test_flashinfer_is_told_of_bytes(install):
    class Wrapper(RaggedWrapper):
        def plan(self, *arguments, **options):
            assert options["kv_data_type"] == options["q_data_type"] == torch.float8_e4m3fn
            assert options["o_data_type"] == torch.bfloat16
            super().plan(*arguments, **options)

        def run(self, q, k, v, *scales):
            assert [list(scale) for scale in scales] == [[1] * 4, [1] * 2, [1] * 2]
            return super().run(q, k, v)

    install("flashinfer", BatchPrefillWithRaggedKVCacheWrapper=Wrapper)
    cell = AttentionCell(2, 8, 8, 4, 2, 16, True, dtype="e4m3")
    inputs = [tuple(x.to(torch.float8_e4m3fn) for x in inputs_of(cell)[0])]
    contender = flash_peers.flashinfer(cell, inputs)
    truth = exact.attention(cell, *inputs[0])
    exact.judge(contender.view(contender.call(0)), truth, cell.dtype)


class Recorder:
    """A wrapper of FlashInfer's that gives what it was asked."""

    def __init__(self, workspace, layout, **options):
        self.made = options

    def plan(self, *arguments, **options):
        self.planned = [x.tolist() if torch.is_tensor(x) else x for x in arguments], options

    def run(self, *tensors):
        return self.made, *self.planned, tensors


def serving_call(install, name, cell, table=None):
    install("flashinfer", **{name: Recorder})
    q = torch.zeros(sum(cell.lens_q), cell.heads, cell.dim)
    starts = [torch.tensor([0, *n]).cumsum(0) for n in (cell.lens_q, cell.lens_k)]
    inputs = types.SimpleNamespace(
        q=q, keys=["k", "v"], starts_q=starts[0], starts_k=starts[1], table=table
    )
    made, planned, options, tensors = flash_peers.flashinfer_serving(cell, [inputs]).call(0)
    assert options.pop("q_data_type") == options.pop("kv_data_type") == q.dtype
    assert options.pop("o_data_type") == q.dtype and tensors[0] is q
    return made, planned, options, tensors[1:]


def test_flashinfer_takes_packed_sequences(install):
    cell = ServingCell((3, 2), (9, 4), heads=4, heads_kv=2, dim=16, left=5)
    made, planned, options, keys = serving_call(
        install, "BatchPrefillWithRaggedKVCacheWrapper", cell
    )
    assert (made, planned) == ({}, [[0, 3, 5], [0, 9, 13], 4, 2, 16])
    assert options == {"causal": True, "window_left": 5} and keys == ("k", "v")


def test_flashinfer_takes_a_table_as_a_list_of_pages(install):
    table = torch.tensor([[5, 3, 7], [2, 9, 0]])
    pages = [[0, 3, 5], [5, 3, 7, 2, 9], [1, 4]]
    cell = ServingCell((3, 2), (9, 8), page=4, heads=4, heads_kv=2, dim=16)
    made, planned, options, keys = serving_call(
        install, "BatchPrefillWithPagedKVCacheWrapper", cell, table
    )
    assert (made, planned) == ({}, [[0, 3, 5], *pages, 4, 2, 16, 4])
    assert options == {"causal": True, "window_left": -1} and keys == (("k", "v"),)

    for heads, cores in ((4, False), (8, True)):
        cell = ServingCell((1, 1), (9, 8), page=4, heads=heads, heads_kv=2, dim=16)
        made, planned, options, keys = serving_call(
            install, "BatchDecodeWithPagedKVCacheWrapper", cell, table
        )
        assert (made, planned) == ({"use_tensor_cores": cores}, [*pages, heads, 2, 16, 4])
        assert options == {"window_left": -1} and keys == (("k", "v"),)


@pytest.mark.parametrize("more", [{}, {"page": 4, "cache": "e4m3"}, {"page": 4, "graph": True}])
def test_flashinfer_leaves_out_what_it_does_not_serve(install, more):
    install("flashinfer")
    with pytest.raises(measure.Unavailable):
        flash_peers.flashinfer_serving(ServingCell((1,), (9,), **more), [])


def test_flashinfer_leaves_out_decoding(install):
    install("flashinfer", BatchPrefillWithRaggedKVCacheWrapper=RaggedWrapper)
    with pytest.raises(measure.Unavailable, match="paged"):
        flash_peers.flashinfer(AttentionCell(2, 1, 9, 2, 2, 16, decode=True), [])
