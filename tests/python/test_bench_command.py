"""`kiln bench`: its arithmetic, its checks and its report; the times themselves need a GPU."""

import json
import subprocess
import sys

import kiln
import numpy as np
import pytest
from kiln.cli import bench, bench_cases, bench_measure
from kiln.cli.bench_cases import AttentionCase, GemmCase
from kiln.cli.gemm_timing import Kind, Shape

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)
PREFILL = AttentionCase(2, 5, 4, 64, 2, 9, "float16", causal=True, window=None)
PRODUCT = GemmCase(Shape(17, 64, 128), Kind.of("float16", None, "nt", "full"))


def with_window(window, causal=False):
    return AttentionCase(1, 7, 1, 8, 1, 9, "float16", causal=causal, window=window)


@pytest.mark.parametrize("window", [None, 0, 3, 100])
@pytest.mark.parametrize("shape", [(7, 9), (9, 7), (1, 9), (6, 6)])
def test_pairs_are_those_that_the_mask_leaves(window, shape):
    rows, keys = shape
    q, kv = np.mgrid[:rows, :keys]
    seen = kv <= q + keys - rows
    if window is not None:
        seen &= kv >= q + keys - rows - window
    case = AttentionCase(3, rows, 4, 16, 2, keys, "float16", causal=True, window=window)
    assert case.flops() == 4 * 3 * 4 * 16 * seen.sum()


def test_work_of_a_call():
    dense = AttentionCase(2, 5, 4, 64, 2, 9, "float16", causal=False, window=None)
    assert dense.flops() == 4 * 2 * 4 * 64 * 5 * 9
    assert dense.bytes() == 2 * 64 * 2 * (2 * 5 * 4 + 2 * 9 * 2)
    assert PRODUCT.flops() == 2 * 17 * 64 * 128
    assert PRODUCT.bytes() == 2 * (17 * 128 + 64 * 128 + 17 * 64)
    f8 = GemmCase(Shape(2, 3, 4), Kind.of("float8_e4m3fn", None, "nt", "full"))
    assert f8.bytes() == 2 * 4 + 3 * 4 + 2 * 2 * 3


def test_peaks():
    assert bench_measure.peaks_of("NVIDIA H200")["tb_per_s"] == 4.8
    assert bench_measure.peaks_of("Fake GPU") == {}


class HostGpu:
    """Arrays that the emulated device takes, and a clock that each time stamp advances."""

    torch = None
    ordinal = 0
    out_of_memory = MemoryError

    def __init__(self):
        self.now = 0.0

    def random(self, shape, dtype):
        return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def as_float(self, array):
        return np.asarray(array, dtype=np.float32)

    def flush(self):
        pass

    def event(self):
        self.now += 5
        return self.now

    def microseconds(self, before, after):
        return after - before

    def synchronize(self):
        pass


class TorchCpu(HostGpu):
    """The same with PyTorch's CPU tensors, so that there is a peer."""

    def __init__(self):
        super().__init__()
        self.torch = pytest.importorskip("torch")

    def random(self, shape, dtype):
        generator = self.torch.Generator().manual_seed(len(shape))
        return self.torch.randn(shape, generator=generator).to(getattr(self.torch, dtype))

    def empty(self, shape, dtype):
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype))

    def as_float(self, tensor):
        return tensor.float()


@pytest.mark.parametrize(
    "case",
    [
        PREFILL,
        AttentionCase(1, 8, 2, 64, 2, 8, "bfloat16", causal=True, window=None),
        AttentionCase(2, 1, 4, 64, 4, 9, "float16", causal=True, window=None),
        PRODUCT,
        GemmCase(Shape(16, 64, 64), Kind.of("bfloat16", None, "tn", "full")),
    ],
    ids=str,
)
def test_kiln_and_pytorch_compute_the_same(case):
    with kiln.device("emulator:sm_80"):
        calls = case.prepare(TorchCpu())
        assert calls.why_no_peer == ""
        assert bench_measure.check_result(case, calls, TorchCpu())


def test_a_wrong_result_is_an_error():
    gpu = HostGpu()
    good = gpu.random((4, 8), "float16")
    wrong = good.copy()
    wrong[3, 5] = np.nan
    calls = bench_cases.Calls(lambda: wrong, lambda: good, "PyTorch matmul", "")
    with pytest.raises(kiln.Error, match=r"PyTorch matmul differ; please report"):
        bench_measure.check_result(PRODUCT, calls, gpu)


def test_a_peer_that_refuses_is_left_out_with_its_reason():
    def refuse():
        raise TypeError("got an unexpected keyword argument 'enable_gqa'\nmore")

    def full():
        raise MemoryError("2 GiB wanted")

    calls = bench_cases.Calls(lambda: None, refuse, "PyTorch SDPA", "")
    left = bench_measure.without_refusals(calls, HostGpu())
    assert left.peer is None
    assert left.why_no_peer == (
        "PyTorch SDPA refuses: got an unexpected keyword argument 'enable_gqa'"
    )
    with pytest.raises(MemoryError):
        bench_measure.without_refusals(bench_cases.Calls(full, full, "x", ""), HostGpu())


def test_without_a_peer():
    with kiln.device("emulator:sm_80"):
        windowed = with_window(3, causal=True).prepare(TorchCpu())
        assert (windowed.peer, windowed.why_no_peer) == (None, "SDPA has no windows")
        keyless = AttentionCase(1, 9, 1, 64, 1, 7, "float16", causal=True, window=None)
        assert keyless.prepare(TorchCpu()).why_no_peer == "SDPA makes NaN of rows without keys"
        result = bench_measure.measure(PRODUCT, HostGpu(), 0, {"half": 100, "tb_per_s": 2})
    assert (result["peer"], result["checked"]) == (None, False)
    assert result["us"] == 5
    assert result["tflops"] == pytest.approx(PRODUCT.flops() / 5e6)
    assert result["share_of_peak"]["tb_per_s"] == pytest.approx(PRODUCT.bytes() / 5e6 / 2)


@pytest.fixture
def command(monkeypatch):
    """Runs `kiln bench` in this process, the CPU posing as an H200."""
    from kiln import cli

    device = {"name": "NVIDIA H200", "ordinal": 0}
    monkeypatch.setattr(bench, "find_gpu", lambda *dtypes, **options: TorchCpu())
    monkeypatch.setattr(bench.control, "diagnose", lambda: {"devices": [device]})

    def run(*arguments):
        with kiln.device("emulator:sm_80"):
            return cli.main(["bench", *map(str, arguments), "--seconds", "0"])

    return run


def test_the_report(command, capsys):
    arguments = ["gemm", "--m", "16,32", "--n", 64, "--k", 64, "--dtype", "f16"]
    assert command(*arguments, "--json") == OK
    report = json.loads(capsys.readouterr().out)
    assert (report["device"], report["peaks"]["half"]) == ("NVIDIA H200", 989.4)
    assert [result["case"] for result in report["results"]] == [
        "16 x 64 x 64, nt",
        "32 x 64 x 64, nt",
    ]
    assert report["results"][0]["peer"] == {"name": "PyTorch matmul", "us": 5, "ratio": 1}
    assert report["results"][0]["checked"]
    assert command(*arguments) == OK
    captured = capsys.readouterr()
    assert "TFLOP/s" in captured.out and "NVIDIA H200, peaks" in captured.out
    assert "[2/2]" in captured.err
    assert command("flash_attention", "--shape", "1x8x2x64", "--window", 3) == OK
    assert "SDPA has no windows: Kiln alone" in capsys.readouterr().out


def test_memory_that_is_not_enough(command, capsys, monkeypatch):
    def full(*arguments):
        raise MemoryError("2 GiB wanted")

    monkeypatch.setattr(bench, "measure", full)
    assert command("gemm", "--m", 1, "--n", 64, "--k", 64) == ENVIRONMENT
    assert "1 x 64 x 64, nt does not fit in the GPU's memory (2 GiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["gemm", "--m", "1"],
        ["gemm", "--m", "0", "--n", "1", "--k", "1"],
        ["gemm", "--m", "1", "--n", "1", "--k", "1", "--precision", "fast"],
        ["flash_attention"],
        ["flash_attention", "--shape", "1x2x3"],
        ["flash_attention", "--shape", "1x8x4x64", "--kv-heads", "3"],
        ["flash_attention", "--shape", "1x8x4x64", "--kv-len", "0"],
        ["flash_attention", "--shape", "1x8x4x64", "--window", "-1"],
        ["flash_attention", "--shape", "1x8x4x64", "--dtype", "float32"],
    ],
)
def test_usage_errors(kiln_command, arguments):
    run = kiln_command("bench", *arguments)
    assert (run.code, run.stdout) == (USAGE, "")
    assert run.stderr and "Traceback" not in run.stderr


def test_the_emulated_device_is_never_timed(kiln_command):
    run = kiln_command("bench", "gemm", "--m", 1, "--n", 64, "--k", 64, CUDA_VISIBLE_DEVICES="")
    assert (run.code, run.stdout) == (ENVIRONMENT, "")
    assert run.stderr.startswith("kiln: no GPU: ")


no_driver = pytest.mark.skipif(
    kiln.diagnose()["driver"]["found"], reason="a real driver: see tests/kernels/cuda"
)


@no_driver
def test_a_gpu_without_pytorch_or_cupy(kiln_command, fake_driver):
    arguments = ["bench", "gemm", "--m", 1, "--n", 64, "--k", 64]
    run = kiln_command(*arguments, LD_LIBRARY_PATH=fake_driver)
    assert (run.code, run.stdout) == (ENVIRONMENT, "")
    assert "memory on the GPU comes from PyTorch or CuPy" in run.stderr
    assert "install PyTorch with CUDA, or CuPy" in run.stderr


@no_driver
@pytest.mark.parametrize(
    "arguments",
    [
        ["gemm", "--m", "1,32", "--n", "64", "--k", "64"],
        ["flash_attention", "--shape", "1x8x4x64", "--kv-heads", "2", "--causal"],
    ],
)
def test_through_the_driver_alone(kiln_command, fake_driver, arguments):
    flags = ["--dtype", "f16", "--seconds", "0"]
    run = kiln_command("bench", *arguments, *flags, "--json", LD_LIBRARY_PATH=fake_driver)
    assert run.code == OK, run.stderr
    report = run.json()
    assert (report["device"], report["peaks"]) == ("Fake GPU", {})
    for result in report["results"]:
        assert result["us"] == pytest.approx(100)  # as every span of time on the fake driver
        assert result["tflops"] == pytest.approx(result["flops"] / 1e8)
        assert (result["peer"], result["why_no_peer"]) == (None, "PyTorch is not here")
    table = kiln_command("bench", *arguments, *flags, LD_LIBRARY_PATH=fake_driver).stdout
    assert "Fake GPU, its peaks are not listed here" in table
    assert "PyTorch is not here: Kiln alone, its result unchecked" in table


@no_driver
def test_arrays_of_the_driver(environment, fake_driver):
    script = """
import json
from kiln.cli.driver_gpu import DriverGpu, OutOfMemory
gpu = DriverGpu()
array = gpu.random((3, 4, 5), "float32")
shown = array.__cuda_array_interface__
turned = array.T.__cuda_array_interface__
before = gpu.event()
gpu.flush()
print(json.dumps([shown["strides"], turned["shape"], turned["strides"], shown["typestr"],
                  gpu.microseconds(before, gpu.event()), gpu.ordinal]))
"""
    variables = {**environment, "LD_LIBRARY_PATH": fake_driver}
    out = subprocess.check_output([sys.executable, "-c", script], env=variables)
    shown, shape, strides, kind, us, ordinal = json.loads(out)
    assert (shown, shape, strides) == ([80, 20, 4], [5, 4, 3], [4, 20, 80])
    assert (kind, us, ordinal) == ("<f4", pytest.approx(100), 0)
