"""GEMM with few tiles and a long K: CTAs share a tile and meet in a workspace."""

import dataclasses

import pytest
import torch
from case_group import CaseGroup
from gemm_case import GemmCase, judge
from grid import arch, is_full, sized
from kiln import jit
from storage import DEVICE, DTYPES, leave_in_free_memory, place

pytestmark = pytest.mark.usefixtures("compiled", "device")

hopper = pytest.mark.skipif(arch() not in ("sm_90", "sm_90a"), reason="needs sm_90a")

# By the rows of tiles that they take: 16, 32, 64 and more.
SHAPES = [(5, 72, 4096), (32, 64, 8200), (64, 136, 8256), (72, 200, 6000)]
SPLIT = GemmCase(m=20, n=72, k=4608)
# On the portable path, whose parts of a sum meet in a workspace, whatever the device.
PORTABLE = dataclasses.replace(SPLIT, storage="odd", out_storage="odd")


@dataclasses.dataclass(frozen=True)
class SplitGroup(CaseGroup):
    """Calls that split K, which each makes sure of."""

    def check(self):
        for case in self.cases:
            assert case.explain()["splits"] > 1, str(case)
        super().check()


def groups():
    for dtype in DTYPES:
        for layout in ("nn", "nt", "tn", "tt"):
            case = GemmCase(dtype=dtype, layout=layout)
            yield SplitGroup(
                f"{dtype}-{layout}",
                tuple(dataclasses.replace(case, m=m, n=n, k=k) for m, n, k in SHAPES),
            )
            odd = dataclasses.replace(case, storage="odd", out_storage="odd", m=35, n=67, k=4099)
            yield SplitGroup(f"{dtype}-{layout}-odd", (odd,))


def epilogue_groups():
    for dtype in DTYPES:
        case = GemmCase(dtype=dtype, m=20, n=130, k=4608, bias="f32", residual=dtype, alpha=0.5)
        yield SplitGroup(f"{dtype}-silu", (dataclasses.replace(case, activation="silu"),))
        yield SplitGroup(f"{dtype}-to-f32", (dataclasses.replace(case, out_dtype="f32"),))
        batch = dataclasses.replace(case, batch_a=2, batch_b=2)
        broadcast = dataclasses.replace(case, batch_a=2, batch_b=0)
        yield SplitGroup(f"{dtype}-batch", (batch, broadcast))
    half = GemmCase(dtype="f16", m=20, n=72, k=4608, accumulator="float16")
    yield SplitGroup("half-sums", (half,))


@pytest.mark.parametrize("group", [*groups(), *epilogue_groups()], ids=str)
def test_splits(group):
    group.check()


# Rows of sm_90a whose CTAs of a cluster share a tile.
SHARED = [
    (128, 128, 64, 7, 1), (128, 96, 64, 8, 1), (128, 96, 64, 7, 2), (128, 64, 64, 8, 1),
    (64, 128, 64, 9, 1), (64, 64, 64, 11, 1), (32, 64, 64, 9, 1), (16, 64, 64, 10, 1),
]  # fmt: skip


@hopper
@pytest.mark.parametrize("config", sized(small=SHARED[2::3], full=SHARED), ids=str)
def test_any_number_of_parts_of_a_cluster(config):
    """Slabs are divided unevenly, or there are fewer than parts."""
    most = 8 // config[4]
    for parts in sized(small=(1, 3, most), full=range(1, most + 1)):
        case = GemmCase(m=config[0] * config[4] - 3, n=config[1] * 2 - 8, k=64 * (parts * 9 - 1),
                        config=(*config, parts))  # fmt: skip
        assert case.explain()["splits"] == parts
        first = case.check()
        assert torch.equal(case.check(), first)


@hopper
@pytest.mark.skipif(not is_full(), reason="the emulator takes its time")
@pytest.mark.parametrize("config", SHARED, ids=str)
@pytest.mark.parametrize("parts", [2, 3])
def test_clusters_that_share_tiles_follow_each_other(config, parts):
    """More clusters than fit begin where others have ended, at other times."""
    GemmCase(m=config[0] * config[4], n=config[1] * 190, k=64 * 20, config=(*config, parts)).check()


def test_an_expression_sees_the_whole_sum():
    assert SPLIT.explain()["splits"] > 1
    a, b = SPLIT.inputs()
    out = place("guarded", [20, 72], torch.bfloat16)
    jit.gemm(a, b, out=out.view, epilogue="acc * acc + 0.01f * (row - col)")
    row, col = torch.arange(20, device=DEVICE)[:, None], torch.arange(72, device=DEVICE)[None]
    judge("squares", a, b, out,
          epilogue=lambda acc, bias, residual: acc * acc + 0.01 * (row - col))  # fmt: skip


def test_every_part_of_k_counts_once():
    """Sums of ones: exact in fp32, whatever the order."""
    k = 4608
    a = torch.ones([20, k], dtype=torch.bfloat16, device=DEVICE)
    b = torch.ones([k, 72], dtype=torch.bfloat16, device=DEVICE)
    out = jit.gemm(a, b, out_dtype=torch.float32)
    assert (out == k).all()


def test_repeats_are_bit_identical():
    a, b = SPLIT.inputs()
    first = jit.gemm(a, b)
    others = SPLIT.inputs(seed=20)
    for _ in range(20):
        jit.gemm(*others)  # leaves its own parts in the workspace
        out = SPLIT.output()
        jit.gemm(a, b, out=out.view)
        assert torch.equal(out.view, first)


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])  # 0x7f7f7f7f is 3e38, 0xffffffff is NaN
def test_what_lies_in_the_workspace_does_not_matter(byte):
    a, b = PORTABLE.inputs()
    size = PORTABLE.explain()["workspace_bytes"]
    assert size > 0
    out = PORTABLE.output()
    leave_in_free_memory(size, byte)
    jit.gemm(a, b, out=out.view)
    judge(f"{PORTABLE} in {byte:#x}", a, b, out)


def test_a_chosen_tile_is_split_too():
    by_config = dataclasses.replace(SPLIT, config=(64, 64, 64, 6))
    assert by_config.explain()["splits"] > 1
    by_config.check()


@pytest.mark.cuda
@pytest.mark.parametrize("dtype,config", [("bf16", (64, 64, 64, 6)), ("f32", (64, 64, 32, 6))])
def test_the_tiles_of_a_nearly_empty_wave_are_split(dtype, config):
    multiprocessors = torch.cuda.get_device_properties().multi_processor_count
    case = GemmCase(dtype=dtype, m=61, n=64 * (multiprocessors + 5) - 8, k=8192, config=config,
                    bias="f32", activation="relu")  # fmt: skip
    explained = case.explain()
    assert explained["splits"] > 1 and explained["whole_tiles"] == multiprocessors
    out = case.check()
    assert torch.equal(case.check(), out)


# Rows of Hopper's whose parts of K are of no cluster, and the parts that they are tried with: as
# many as slabs of a group, fewer and more.
APART = [(128, 96, 64, 6, 1, parts) for parts in (2, 3, 5, 8)]
APART += [(128, 144, 64, 6, 1, 4), (128, 160, 64, 6, 1, 3)]


def apart(config, **changes):
    return GemmCase(**{"m": 200, "n": 136, "k": 64 * 20 - 8, "config": config} | changes)


@hopper
@pytest.mark.parametrize("config", APART, ids=str)
def test_parts_apart_meet_in_the_workspace(config):
    case = apart(config)
    explained = case.explain()
    assert explained["splits"] == config[-1] and explained["workspace_bytes"] > 0
    first = case.check()
    assert torch.equal(case.check(), first)


@hopper
@pytest.mark.parametrize("storage", ["plain", "odd"])
def test_parts_apart_of_a_batch_with_all_of_an_epilogue(storage):
    apart(APART[1], batch_a=2, batch_b=2, m=131, bias="f32", residual="bf16", activation="silu",
          out_storage=storage).check()  # fmt: skip
    apart(APART[1], n=384, activation="swiglu").check()
    apart(APART[1], out_dtype="f32", alpha=0.5).check()


@hopper
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])
def test_parts_apart_take_a_workspace_of_any_content(byte):
    case = apart(APART[2])
    a, b = case.inputs()
    size, out = case.explain()["workspace_bytes"], case.output()
    jit.gemm(a, b, out=out.view, config=case.config)
    first = out.view.clone()
    leave_in_free_memory(size, byte)
    jit.gemm(a, b, out=out.view, config=case.config)
    assert torch.equal(out.view, first)


@hopper
def test_a_part_apart_of_one_k_tile():
    """No more parts than K-tiles, nor than run at once."""
    assert apart(APART[3], k=72).explain()["splits"] == 2
    apart(APART[3], k=72).check()
    whole = apart(APART[3], k=56)
    assert whole.explain()["splits"] == 1
    whole.check()


@hopper
@pytest.mark.cuda
def test_parts_apart_on_two_streams_and_in_a_graph():
    cases = [apart(APART[i], m=256, n=1536, k=4096) for i in (0, 1)]
    inputs = [case.inputs(seed) for seed, case in enumerate(cases)]
    expected = [jit.gemm(a, b, config=cases[i].config) for i, (a, b) in enumerate(inputs)]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    for _ in range(50):
        outs = []
        for stream, case, (a, b) in zip(streams, cases, inputs):
            with torch.cuda.stream(stream):
                outs += [jit.gemm(a, b, config=case.config) for _ in range(3)]
        torch.cuda.synchronize()
        for i, out in enumerate(outs):
            assert torch.equal(out, expected[i // 3])
    graph, (a, b) = torch.cuda.CUDAGraph(), inputs[1]
    with torch.cuda.graph(graph):
        for _ in range(3):
            out = jit.gemm(a, b, config=cases[1].config)
    for _ in range(20):
        out.zero_()
        graph.replay()
        assert torch.equal(out, expected[1])
