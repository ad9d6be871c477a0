"""Which device calls on host memory run on: the rules, with and without a driver. The results of
NumPy arrays and CPU tensors on the emulated device: test_host_results.py."""

import json
import os
import pathlib
import subprocess
import sys
import threading

import kiln
import numpy as np
import pytest
import torch
from fake_tensors import CPU, CUDA_HOST, CudaArray, DlpackTensor
from kiln import jit

DEV_BUILD = pathlib.Path(__file__).parents[2] / "build/dev"
NO_DRIVER = not kiln.diagnose()["driver"]["found"]
without_driver = pytest.mark.skipif(not NO_DRIVER, reason="a driver is here")
SHAPE = (1, 16, 4, 64)
EMULATED = "Kiln's emulated sm_90a"

# What explain() says of host arrays, or the error; no kernel is compiled or run.
SCRIPT = """
import json, sys
import kiln, numpy
a = numpy.zeros((32, 64), numpy.float16)
try:
    answer = kiln.explain("gemm", a, a, trans_b=True)["device"]
except (kiln.Error, TypeError, ValueError) as error:
    answer = f"{type(error).__name__}: {error}"
print(json.dumps([answer, kiln.diagnose()["device"]]))
"""


@pytest.fixture
def answer(environment, tmp_path):
    """Runs SCRIPT with a library in place of the driver; keywords are environment variables."""

    def run(driver=None, **variables):
        variables = {**environment, **variables}
        if driver is not None:
            (tmp_path / "libcuda.so.1").symlink_to(driver)
            variables["LD_LIBRARY_PATH"] = str(tmp_path)
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


@pytest.fixture
def working_driver():
    """The real one where there is a GPU (None: nothing to put in its place), else the fake one."""
    if kiln.diagnose()["devices"]:
        return None
    found = os.environ.get("KILN_FAKE_CUDA") or DEV_BUILD / "tests/libfake_cuda.so"
    assert pathlib.Path(found).exists(), "run make build: the C++ tests bring the fake driver"
    return found


@pytest.fixture
def broken_driver(tmp_path):
    """A library that opens but is no driver."""
    libraries = pathlib.Path("/proc/self/maps").read_text().split()
    return next(path for path in libraries if "/libm.so" in path or "/libm-" in path)


def host_array(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def explained(*tensors, **options):
    return kiln.explain("gemm", *tensors, **options)["device"]


# ------------------------------------------------------------------------------ rules of choice


@without_driver
def test_auto_without_a_driver_emulates(answer):
    device, report = answer()
    assert device == EMULATED
    assert report == {
        "choice": "auto", "host_arrays": EMULATED, "cpu_tensors": EMULATED, "problem": ""
    }  # fmt: skip


def test_auto_with_a_working_driver_takes_numpy_arrays_to_the_gpu(answer, working_driver):
    device, report = answer(working_driver)
    assert device == report["host_arrays"] != EMULATED
    assert report["cpu_tensors"] is None


def test_auto_never_papers_over_a_broken_driver(answer, broken_driver):
    device, report = answer(broken_driver)
    assert device.startswith("CudaError: ")
    assert "not a working CUDA driver" in device
    assert "KILN_DEVICE=emulator" in device
    assert report["host_arrays"] is None and report["problem"]


@pytest.mark.parametrize("choice", ["emulator", "emulator:sm_90a,eager,seed=3,checks=off"])
def test_a_chosen_emulator_asks_no_driver(answer, broken_driver, choice):
    assert answer(broken_driver, KILN_DEVICE=choice)[0] == EMULATED


def test_the_environment_chooses_the_arch(answer):
    assert answer(KILN_DEVICE="emulator:sm_80")[0] == "Kiln's emulated sm_80"


def test_cuda_is_never_emulated(answer):
    device, report = answer(KILN_DEVICE="cuda")
    assert device == report["host_arrays"] or device.startswith("CudaError: ")
    assert report["cpu_tensors"] is None


@pytest.mark.parametrize("choice", ["gpu", "emulator:sm_35", "emulator:sm_90a,lazy", "cuda:x"])
def test_a_bad_environment_is_named(answer, choice):
    with pytest.raises(subprocess.CalledProcessError) as error:
        answer(KILN_DEVICE=choice)
    assert "KILN_DEVICE: " in error.value.stderr


def test_device_is_a_call_and_a_context():
    a = host_array(32, 64)
    cpu = torch.from_numpy(a)
    with kiln.device("emulator:sm_80"):
        assert explained(a, a, trans_b=True).endswith("sm_80")
        kiln.device("cuda")  # until the end of the block around it
        with pytest.raises(TypeError, match="in host memory"):
            explained(cpu, cpu, trans_b=True)
        with kiln.device("emulator", schedule="eager", seed=2, checks=False):
            assert explained(a, a, trans_b=True) == EMULATED
        with pytest.raises(TypeError, match="in host memory"):
            explained(cpu, cpu, trans_b=True)


def test_one_device_object_serves_several_blocks():
    a = host_array(32, 64)
    before = kiln._core.device()
    chosen = kiln.device("emulator:sm_80")
    for _ in range(2):
        with chosen:
            assert explained(a, a, trans_b=True).endswith("sm_80")
        assert kiln._core.device() == before


def test_one_device_object_serves_a_block_inside_its_own():
    before = kiln._core.device()
    with kiln.device("emulator:sm_90a"):
        around = kiln._core.device()
        chosen = kiln.device("emulator:sm_80")
        with chosen:
            inside = kiln._core.device()
            with kiln.device("emulator"), chosen:
                assert kiln._core.device() == inside
            assert kiln._core.device() == inside
        assert kiln._core.device() == around
    assert kiln._core.device() == before


def test_an_emulated_device_has_as_many_multiprocessors_as_asked_for():
    """Their number decides what a call chooses, and each number is a device of its own."""
    rows = host_array(1, 200, 8, 128)
    seen = {}
    for count in (None, 132, 12, 78, 12):
        options = "" if count is None else f",late,multiprocessors={count}"
        with kiln.device(f"emulator:sm_90a{options}"):
            found = kiln.explain("flash_attention", rows, rows, rows, causal=True)
            seen.setdefault(found["device"], set()).add(found["path"])
    assert seen == {
        EMULATED: {"portable"},
        f"{EMULATED} of 12 multiprocessors": {"sm_90a"},
        f"{EMULATED} of 78 multiprocessors": {"portable"},
    }


def test_each_thread_has_its_own_device():
    seen = []
    with kiln.device("emulator:sm_80"):
        thread = threading.Thread(target=lambda: seen.append(kiln._core.device()))
        thread.start()
        thread.join()
    assert seen == [kiln._core.device()] == ["auto"]


@pytest.mark.parametrize(
    ("choice", "options", "text"),
    [
        ("gpu", {}, "auto, cuda, cuda:N, emulator"),
        ("emulator:sm_70", {}, "does not model 'sm_70'"),
        ("emulator", {"schedule": "lazy"}, "late, eager"),
        ("cuda", {"seed": 1}, "belong to the emulator"),
        ("emulator:late", {"seed": -1}, "seed=N"),
        ("emulator:multiprocessors=0", {}, "got 'multiprocessors=0'"),
        ("emulator:sm_90a,multiprocessors=1025", {}, "got 'multiprocessors=1025'"),
    ],
)
def test_bad_choices(choice, options, text):
    with pytest.raises(ValueError, match=text):
        kiln.device(choice, **options)


@without_driver
def test_a_call_of_minutes_wants_to_be_asked_for():
    a = host_array(1 << 15, 1 << 15)  # zero pages: never touched
    with pytest.raises(kiln.Error, match=r"would take about \d+ minute.*KILN_DEVICE=emulator"):
        jit.gemm(a, a)


def test_host_and_device_do_not_mix(emulator):
    k = CudaArray(SHAPE)
    q = host_array(*SHAPE)
    with pytest.raises(TypeError, match="k is on cuda:63 but q is in host memory"):
        jit.flash_attention(q, k, k, out=q)
    with pytest.raises(TypeError, match="k is in host memory but q is on cuda:63; move it there"):
        jit.flash_attention(k, q, q, out=k)
    with pytest.raises(kiln.CudaError):  # a device tensor's own device wins
        jit.flash_attention(k, k, k, out=CudaArray(SHAPE))


def test_host_transports(emulator):
    for make in (lambda d: DlpackTensor((32, 64), device=(d, 0)), lambda d: torch.zeros(32, 64)):
        for device in (CPU, CUDA_HOST):
            a = make(device)
            dtype = {"precision": "tf32"} if isinstance(a, torch.Tensor) else {}
            assert explained(a, a, trans_b=True, **dtype) == EMULATED


def test_only_plain_numpy_arrays(emulator):
    a = host_array(32, 64)
    with pytest.raises(TypeError, match=r"plain NumPy array, got numpy\.ma"):
        jit.gemm(np.ma.masked_array(a), a)
    with pytest.raises(TypeError, match=r"plain NumPy array, got numpy\.float16"):
        jit.gemm(a, np.float16(1))
    a.flags.writeable = False
    with pytest.raises(TypeError, match="out is read-only"):
        jit.gemm(a, a, trans_b=True, out=a)
    with pytest.raises(TypeError, match="does not compute with"):
        jit.gemm(a.astype(">f2"), a)


def test_frameworks_without_an_allocator_need_out(emulator):
    a = DlpackTensor((32, 64), device=(CPU, 0))
    with pytest.raises(TypeError, match="pass out=, for example a PyTorch tensor or a NumPy array"):
        jit.gemm(a, a, trans_b=True)


def test_a_cache_is_served_without_nvrtc(environment, kiln_command):
    script = """if True:
        import json, sys
        import kiln, numpy
        from kiln import jit
        a = numpy.ones((16, 16), numpy.float16)
        try:
            answer = float(jit.gemm(a, a)[0, 0])
        except kiln.CompileDisabled as error:
            answer = error.spec
        print(json.dumps([answer, kiln.stats()["nvrtc_loaded"]]))
    """
    variables = {"KILN_DEVICE": "emulator", "KILN_JIT": "off", "KILN_NVRTC": "/nonexistent"}

    def run():
        command = [sys.executable, "-c", script]
        return json.loads(subprocess.check_output(command, env={**environment, **variables}))

    spec, _ = run()
    done = kiln_command("prewarm", "--spec", "-", "--arch", "sm_90a", stdin=json.dumps(spec))
    assert done.code == 0, done.stderr
    assert run() == [16.0, False]


@without_driver
def test_one_notice_in_a_process(environment):
    script = (
        "import kiln, numpy\nfrom kiln import jit\n"
        "a = numpy.ones((16, 16), numpy.float16)\n"
        "print([float(jit.gemm(a, a)[0, 0]) for _ in range(2)])\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[16.0, 16.0]\n"
    assert done.stderr.count("there is no CUDA driver here") == 1
    quiet = {**environment, "KILN_DEVICE": "emulator"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_preload_and_prewarm_know_the_chosen_device(emulator):
    spec = {"op": "gemm", "dtype": "float16", "layout": "nt", "block_m": 64, "block_n": 64}
    report = kiln.prewarm([spec])  # without an arch: the emulated device's
    assert report["failed"] == [] and report["total"] > 0
    compiles = kiln.stats()["compiles"]
    kiln.preload(spec)
    assert kiln.stats()["compiles"] == compiles
