"""Which device calls on host memory run on: the rules, with and without a driver, and the results
of NumPy arrays and CPU tensors on the emulated device."""

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
def emulator():
    with kiln.device("emulator:sm_90a"):
        yield


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
    """Which decide what a call chooses; each count is a device of its own."""
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


# -------------------------------------------------------------------------------------- results


def attention_reference(q, k, v, causal):
    """softmax(q k^T / sqrt(d)) v of [batch, length, heads, dim], in fp64, and the log-sum-exp."""
    q, k, v = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows, keys = logits.shape[-2:]
        logits[..., np.arange(keys)[None] > np.arange(rows)[:, None] + keys - rows] = -np.inf
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    return (weights / total @ v).transpose(0, 2, 1, 3), (top + np.log(total))[..., 0]


def random(*shape, dtype=np.float16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got, want, tolerance=2e-3):
    return np.abs(np.asarray(got, np.float64) - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_attention_on_numpy_arrays(schedule):
    q, k, v = (random(1, 40, 2, 64, seed=i) for i in range(3))
    with kiln.device("emulator:sm_90a", schedule=schedule, seed=1):
        out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    want, want_lse = attention_reference(q, k, v, causal=True)
    assert type(out) is np.ndarray and out.dtype == np.float16
    assert lse.shape == (1, 2, 40) and lse.dtype == np.float32
    assert close(out, want) and close(lse, want_lse)


def test_strided_and_reversed_views_in_place(emulator):
    store = random(1, 20, 3, 2, 64)
    q, k, v = (store[:, :, i] for i in range(3))  # one packed array
    out = np.zeros((1, 20, 2, 64), np.float16)
    assert jit.flash_attention(q, k[:, ::-1], v[:, ::-1], out=out) is out
    assert close(out, attention_reference(q, k, v, causal=False)[0])


def test_out_may_be_an_input(emulator):
    q, k, v = (random(1, 16, 1, 64, seed=i) for i in range(3))
    want = attention_reference(q, k, v, causal=False)[0]
    assert jit.flash_attention(q, k, v, out=q) is q
    assert close(q, want)


def test_gemm_on_numpy_arrays(emulator):
    a, b = random(33, 40), random(24, 40, seed=1)
    for array in (a, b):
        array.flags.writeable = False  # inputs are only read
    bias = random(24, dtype=np.float32, seed=2)
    out = jit.gemm(a, b.T, bias=bias, activation="relu", out_dtype="float32")
    want = np.maximum(a.astype(np.float64) @ b.T.astype(np.float64) + bias, 0)
    assert out.dtype == np.float32 and close(out, want)


def test_cpu_torch_tensors(emulator):
    a, b = torch.randn(16, 32).bfloat16(), torch.randn(32, 24).bfloat16()
    out = jit.gemm(a, b)
    assert out.device.type == "cpu" and out.dtype == torch.bfloat16
    assert close(out.float(), (a.double() @ b.double()).numpy(), 1e-2)
    parameter = torch.nn.Parameter(a)
    with pytest.raises(ValueError, match="no_grad"):
        jit.gemm(parameter, b)
    with torch.no_grad():
        assert torch.equal(jit.gemm(parameter, b), out)


def test_bfloat16_numpy_arrays_by_dtype_name(emulator):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = random(16, 32, dtype=np.float32).astype(ml_dtypes.bfloat16)
    out = jit.gemm(a, a.T)
    assert out.dtype == ml_dtypes.bfloat16
    wide = a.astype(np.float64)
    assert close(out.astype(np.float32), wide @ wide.T, 1e-2)


def test_variants_with_host_tensors(emulator):
    q, k, v = (random(1, 16, 1, 64, seed=i) for i in range(3))
    biased = jit.Variant("biased", tensors={"bias": "f32[kv]"}, logits="logit + bias")
    bias = np.zeros(16, np.float32)
    bias[3] = 100.0  # that key alone counts
    out = jit.flash_attention(q, k, v, variant=biased(bias=bias))
    assert close(out, np.broadcast_to(v[:, 3:4].astype(np.float64), out.shape))


def test_threads_compute_at_once():
    a = random(48, 64)
    want = a.astype(np.float64) @ a.T.astype(np.float64)
    results = []

    def work(seed):
        with kiln.device("emulator", seed=seed):
            results.append(jit.gemm(a, a.T))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(np.array_equal(result, results[0]) for result in results) and close(results[0], want)


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
