"""Fixtures of the tests of the Python front end. None needs a GPU; where there is one, the fake
tensors claim a device that no machine has, so that nothing is ever launched on their addresses.

`KILN_TEST_CACHE`: a folder with kernels that other tests compiled, for the calls of this process.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import pytest
import turn_marker

CACHE = tempfile.TemporaryDirectory(prefix="kiln-python-tests-")
# Before the first import: it is read once.
os.environ["KILN_CACHE_DIR"] = os.environ.get("KILN_TEST_CACHE", CACHE.name)
os.environ["KILN_CACHE_PATH"] = ""
os.environ.pop("KILN_JIT", None)
os.environ.pop("KILN_DEVICE", None)
sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for fake_tensors.py, in every import mode

# Whoever started the tests in the background may have them ignore what the tests of Ctrl-C send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One row of the GEMM table: the quickest kernel to compile.
ONE_KERNEL = {"op": "gemm", "dtype": "bfloat16", "block_m": 32, "stages": 4}


def pytest_collection_modifyitems(config, items):
    turn_marker.leave_out_waiting(config, items)


def fresh_kernels(count):
    """Specs of kernels that no cache has yet, by expressions that nobody else writes."""
    numbers = random.SystemRandom().sample(range(2**40), count)
    return [{**ONE_KERNEL, "epilogue": f"acc + {number}.0f"} for number in numbers]


class Finished:
    """A finished run of the command."""

    def __init__(self, process):
        self.code = process.returncode
        self.stdout = process.stdout
        self.stderr = process.stderr

    def json(self):
        return json.loads(self.stdout)


@pytest.fixture
def cache_dir(tmp_path):
    """A cache folder that does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def environment(cache_dir):
    """The environment of a child process with a cache of its own."""
    return {**os.environ, "KILN_CACHE_DIR": str(cache_dir)}


@pytest.fixture
def emulator():
    import kiln

    with kiln.device("emulator:sm_90a"):
        yield


@pytest.fixture
def emulated_torch():
    """PyTorch's CPU tensors on the emulated device, without gradients and with the same numbers."""
    import kiln
    import torch

    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    with kiln.device("emulator:sm_80"), torch.no_grad():
        torch.manual_seed(0)
        yield


@pytest.fixture
def kiln_command(environment):
    """Runs `kiln ARGUMENTS…`; keywords are environment variables."""

    def run(*arguments, stdin=None, preexec_fn=None, **variables):
        process = subprocess.run(
            [sys.executable, "-m", "kiln", *map(str, arguments)],
            env={**environment, **variables},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=preexec_fn,
        )
        return Finished(process)

    return run


@pytest.fixture
def spec_file(tmp_path):
    """A spec file of one kernel."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(ONE_KERNEL))
    return path


@pytest.fixture
def fake_driver(tmp_path):
    """A folder with the fake driver of the C++ tests, for the LD_LIBRARY_PATH of a child: NVRTC,
    which this process loads, looks for the driver too."""
    import kiln  # not before the environment that conftest sets up

    if kiln.diagnose()["driver"]["found"]:
        pytest.skip("a real driver: see tests/kernels/cuda")
    built = pathlib.Path(__file__).parents[2] / "build/dev/tests/libfake_cuda.so"
    found = os.environ.get("KILN_FAKE_CUDA") or built
    assert pathlib.Path(found).exists(), "run make build: the C++ tests bring the fake driver"
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(found)
    return str(folder)
