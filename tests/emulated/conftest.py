"""The emulated device for every test of this folder, on a cache of its own.

Helpers are imported from here and from tests/gpu, whose cases run here on CPU tensors.
"""

import os
import pathlib
import sys
import tempfile
import zlib

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu")]

CACHE = tempfile.TemporaryDirectory(prefix="kiln-emulated-tests-")
os.environ["KILN_CACHE_DIR"] = CACHE.name  # before the first import: it is read once
os.environ["KILN_CACHE_PATH"] = ""
os.environ["KILN_TEST_DEVICE"] = "cpu"
os.environ.pop("KILN_JIT", None)
os.environ.pop("KILN_DEVICE", None)

ARCH = "emulator:sm_90a"
SEEDS = 5


@pytest.fixture(params=["late", "eager"])
def order(request):
    """The whole test under both schedules, each with a seed that the test's name decides."""
    import kiln

    seed = zlib.crc32(request.node.name.encode()) % SEEDS
    with kiln.device(ARCH, schedule=request.param, seed=seed) as device:
        yield device


@pytest.fixture(scope="session")
def compiled(request):
    """Every collected test's `group` has been run once, in parallel threads."""
    import kiln
    import torch
    from ahead import compile_ahead

    torch.set_num_threads(1)  # tensors are tiny here: its threads would only wait for each other
    compile_ahead(request.session.items, lambda: kiln.device(f"{ARCH},eager,checks=off,workers=1"))
