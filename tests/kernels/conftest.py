"""One grid of tests for every device: `--device emulator|cuda` and `--size small|full` choose, by
default a GPU in full if there is one, else the emulated device with small problems.

A test that takes `device` runs once on a GPU, and on the emulated device, all checks on, under one
of its schedules, which KILN_TEST_SEED decides, with KILN_TEST_FULL=1 under both. With a seed, some
tests wait for others' turns: turns.py. Tests marked `cuda` and all of cuda/ need a GPU; those
marked `emulated` the other.
`KILN_TEST_CACHE`: the folder with the kernels that tests/compile has compiled.
"""

import contextlib
import os
import pathlib
import tempfile
import zlib

import grid
import pytest
import turns

HERE = pathlib.Path(__file__).parent
CACHE = tempfile.TemporaryDirectory(prefix="kiln-kernel-tests-")
# Before the first import of kiln, which reads them once.
os.environ["KILN_CACHE_DIR"] = os.environ.get("KILN_TEST_CACHE", CACHE.name)
os.environ["KILN_CACHE_PATH"] = ""
os.environ.pop("KILN_JIT", None)
os.environ.pop("KILN_DEVICE", None)


def pytest_addoption(parser):
    parser.addoption("--device", choices=("auto", *grid.DEVICES), default="auto",
                     help="what tests/kernels runs on")  # fmt: skip
    parser.addoption("--size", choices=("auto", *grid.SIZES), default="auto",
                     help="how large the problems of tests/kernels are")  # fmt: skip
    parser.addoption("--compiled", action="store_true",
                     help="the kernels are in KILN_TEST_CACHE: do not compile ahead")  # fmt: skip


def pytest_configure(config):
    # Without a default, a run that began at another folder has neither option.
    grid.choose(config.getoption("--device", "auto"), config.getoption("--size", "auto"))
    if grid.on_gpu() and grid.why_no_gpu() and not config.option.collectonly:
        raise pytest.UsageError(f"--device cuda: {grid.why_no_gpu()}")
    if not grid.on_gpu():
        with contextlib.suppress(ImportError):
            import torch

            torch.set_num_threads(1)  # tensors are tiny: its threads would only wait for each other


def pytest_ignore_collect(collection_path):
    return True if collection_path == HERE / "cuda" and not grid.on_gpu() else None


def needs_another_device(item):
    if grid.on_gpu():
        return item.get_closest_marker("emulated") is not None
    return item.get_closest_marker("cuda") is not None or HERE / "cuda" in item.path.parents


def waits(item):
    """Whether another schedule's turn it is to run this test."""
    schedule = item.callspec.params.get("device") if hasattr(item, "callspec") else None
    return schedule in grid.schedules() and not grid.takes_its_turn(item.nodeid, schedule)


def pytest_collection_modifyitems(config, items):
    ours = [item for item in items if HERE in item.path.parents]
    others = {item for item in ours if needs_another_device(item) or waits(item)}
    others |= turns.waiting([item for item in ours if item not in others])
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


def pytest_terminal_summary(terminalreporter):
    if grid.on_gpu():
        left_out = "tests marked emulated"
    else:
        why = grid.why_no_gpu() or "--device emulator"
        left_out = f"tests/kernels/cuda and tests marked cuda ({why})"
    terminalreporter.write_line(f"tests/kernels ran on {grid.described()}; left out: {left_out}")


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", grid.schedules(), indirect=True)


def give_memory_back():
    """Frees what PyTorch keeps after a large test: of 15 workers on one GPU of 140 GiB one kept 38,
    and others' tests ran out of memory."""
    import torch

    if torch.cuda.memory_reserved() > 2 << 30:
        torch.cuda.empty_cache()


@pytest.fixture
def device(request):
    """Where the test's calls run: a GPU (None), or the emulated device under a schedule with a seed
    that the test's name decides (a grid.Order)."""
    if grid.on_gpu():
        yield None
        give_memory_back()
        return
    order = grid.Order(request.param, zlib.crc32(request.node.name.encode()) % grid.SEEDS)
    few = request.node.get_closest_marker("few_multiprocessors") is not None
    with order.on(options=f",multiprocessors={grid.FEW_MULTIPROCESSORS}" if few else ""):
        yield order


@pytest.fixture(scope="module")
def compiled(request):
    """Every `group` of the file's tests has been run once, in parallel threads. Not on the emulated
    device by workers of pytest-xdist, which keep the cores busy: it would only run twice."""
    import torch
    from ahead import compile_ahead

    if request.config.getoption("--compiled"):
        return
    if not grid.on_gpu() and "PYTEST_XDIST_WORKER" in os.environ:
        return
    items = [item for item in request.session.items if item.path == request.node.path]
    compile_ahead(items, grid.quick_device)
    if grid.on_gpu():
        torch.cuda.synchronize()
