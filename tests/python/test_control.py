"""Statistics, policy, explanation and prewarming from Python."""

import concurrent.futures
import subprocess
import sys
import threading

import kiln
import pytest
from conftest import ONE_KERNEL, fresh_kernels
from fake_tensors import CudaArray

OPERATIONS = ("append_kv", "flash_attention", "gemm", "layer_norm", "merge_states",
              "moe_permute", "moe_route", "moe_unpermute", "plan_attention", "quantize",
              "rms_norm")  # fmt: skip


def test_stats_have_their_fields():
    assert set(kiln.stats()) == {
        "memory_hits",
        "disk_hits",
        "misses",
        "compiles",
        "compile_seconds",
        "load_seconds",
        "nvrtc_loaded",
        "kernels_resident",
    }


def test_prewarm_counts_and_reports():
    kiln.reset_stats()
    lines = []
    spec = {**fresh_kernels(1)[0], "dtype": "float16"}
    report = kiln.prewarm(spec, "sm_90a", progress=lambda *line: lines.append(line))
    assert (report["total"], report["compiled"], report["failed"]) == (1, 1, [])
    assert kiln.stats()["compiles"] == 1
    assert kiln.stats()["nvrtc_loaded"]
    ((done, total, what, outcome, seconds),) = lines
    assert (done, total, outcome) == (1, 1, "compiled")
    assert "gemm float16" in what
    assert seconds > 0
    assert kiln.prewarm([spec], ["sm_90"])["cached"] == 1
    assert kiln.prewarm([spec], "sm_90", check=True)["missing"] == 0
    assert kiln.prewarm([spec], "sm_90", recompile=True)["compiled"] == 1


def test_a_progress_callback_that_raises_reaches_the_caller():
    def fail(*line):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        kiln.prewarm(ONE_KERNEL, "sm_80", progress=fail)


def test_a_progress_callback_that_raises_ends_the_work():
    specs = fresh_kernels(3)
    lines = []

    def fail(*line):
        lines.append(line)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        kiln.prewarm(specs, "sm_86", jobs=1, progress=fail)
    assert len(lines) == 1
    assert kiln.prewarm(specs, "sm_86", check=True)["missing"] == 2


def test_a_broken_expression_fails_alone():
    broken = {**ONE_KERNEL, "epilogue": "acc +* 2"}
    report = kiln.prewarm([broken, *fresh_kernels(1)], "sm_86", jobs=1)
    assert report["compiled"] == 1
    assert "acc +* 2" in report["failed"][0]["error"]


def test_a_broken_expression_raises_with_the_log():
    with pytest.raises(kiln.CompileError, match="acc") as error:
        kiln.inspect({**ONE_KERNEL, "epilogue": "acc +* 2"}, "sm_90")
    assert "error:" in error.value.log


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"op": "conv"}, "op"),
        ({"op": "gemm", "colour": 1}, "colour"),
        ({"op": "gemm", "layout": "xy"}, "layout"),
        ({"op": "flash_attention", "head_dim": 12}, "head_dim"),
        ({"op": "flash_attention", "head_dim": 64, "dtype": "float32"}, "dtype"),
        ({"op": "gemm", "block_m": 7}, "table"),
        ("{", "JSON"),
    ],
)
def test_specs_are_checked(spec, text):
    with pytest.raises(ValueError, match=text):
        kiln.prewarm(spec, "sm_90")


@pytest.mark.parametrize("arch", ["sm_12x", "hopper", "sm_35", ""])
def test_arch_must_be_known(arch):
    with pytest.raises(ValueError, match="sm_90"):
        kiln.prewarm(ONE_KERNEL, arch)


def test_inspect_shows_the_kernel():
    (kernel,) = kiln.inspect(ONE_KERNEL, "sm_90a")
    assert "entry" in kernel["ptx"]
    assert "#include" in kernel["source"]
    assert kernel["registers"] > 0
    assert kernel["spec"]["block_m"] == 32


def test_enumerated_specs_name_kernels():
    specs = kiln.enumerate_specs("sm_90a")
    ahead = {"bound_elements", "copy_keys"}  # what attention launches ahead is no operation
    assert {spec["op"] for spec in specs} == ahead.union(OPERATIONS)
    one = next(spec for spec in specs if spec["op"] == "gemm")
    assert kiln.prewarm(one, "sm_90a", check=True)["total"] == 1


def test_set_jit_returns_the_previous_mode():
    assert kiln.set_jit("off") == "auto"
    assert kiln.set_jit("warn") == "off"
    assert kiln.set_jit("auto") == "warn"
    with pytest.raises(ValueError, match="auto, warn or off"):
        kiln.set_jit("never")
    with pytest.raises(TypeError, match="auto, warn or off, got 3"):
        kiln.set_jit(3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"jobs": 1.5}, "jobs must be a whole number, got 1.5"),
        ({"jobs": -3}, "got -3"),
        ({"jobs": 99999999999}, "got 99999999999"),
        ({"arch": 90}, "arch must be a name"),
        ({"problems": None}, "problems must be a spec or several, got None"),
    ],
)
def test_prewarm_checks_its_arguments(arguments, text):
    with pytest.raises((TypeError, ValueError)) as error:
        kiln.prewarm(**{"problems": ONE_KERNEL, "arch": "sm_90", "check": True, **arguments})
    assert str(error.value).startswith("prewarm: ")
    assert text in str(error.value)


def test_no_compile_nests():
    context = kiln.no_compile()
    with context, context, kiln.no_compile():
        pass


def test_no_compile_left_on_another_thread():
    def compiles_something():
        with kiln.device("emulator:sm_90a"):
            kiln.preload(fresh_kernels(1)[0])

    def leave_and_compile():
        context.__exit__(None, None, None)
        compiles_something()

    context = kiln.no_compile()
    context.__enter__()
    with pytest.raises(kiln.CompileDisabled):
        compiles_something()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(leave_and_compile).result()
    compiles_something()


def test_no_compile_made_by_new_alone():
    empty = type(kiln.no_compile()).__new__(type(kiln.no_compile()))
    for use in (empty.__enter__, lambda: empty.__exit__(None, None, None)):
        with pytest.raises(TypeError, match="made by __new__ alone"):
            use()


def test_no_compile_left_without_being_entered():
    with pytest.raises(RuntimeError, match="without being entered"):
        kiln.no_compile().__exit__(None, None, None)


LOGGING = """
import sys, threading, time, kiln
spec = {"op": "gemm", "block_m": 16, "block_n": 64}

def replaced_by_itself(level, text):
    kiln.set_log(None)
    lines.append(text)

def slow(level, text):
    time.sleep(0.05)
    lines.append(text)

lines = []
kiln.set_log(replaced_by_itself)
kiln.inspect(spec, "sm_80")
kiln.set_log(slow)
work = threading.Thread(target=lambda: kiln.prewarm(spec, "sm_80", recompile=True))
work.start()
while work.is_alive():
    kiln.set_log(slow)
print(len(lines))
"""


def test_the_log_may_be_set_while_a_line_is_written(environment):
    environment["KILN_LOG"] = "info"  # a line for each compile
    run = subprocess.run(
        [sys.executable, "-c", LOGGING], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "2\n", run.stderr


def test_log_callbacks_must_be_callable():
    with pytest.raises(TypeError, match=r"callable.* got 3"):
        kiln.set_log(3)


def test_explain_checks_its_arguments():
    q = CudaArray((1, 16, 4, 64))
    with pytest.raises(ValueError, match="moe_unpermute, plan_attention, quantize, rms"):
        kiln.explain("conv", q)
    with pytest.raises(TypeError, match="missing the argument 'v'"):
        kiln.explain("flash_attention", q, q)
    with pytest.raises(kiln.CudaError):
        kiln.explain("flash_attention", q, q, q, causal=True)
    with pytest.raises(kiln.CudaError):
        kiln.explain("gemm", CudaArray((8, 8)), CudaArray((8, 8)))


def test_preload_needs_the_device():
    with pytest.raises(kiln.CudaError):
        kiln.preload(ONE_KERNEL, device=63)


def test_threads_may_prewarm_at_once():
    specs = fresh_kernels(2)
    reports = []
    threads = [
        threading.Thread(target=lambda: reports.append(kiln.prewarm(specs, "sm_89", jobs=2)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report["failed"] for report in reports] == [[]] * 4
    assert sum(report["compiled"] for report in reports) == 2
