"""What is told about compiles: kiln.on_compile and the file of KILN_RECORD."""

import json
import os
import subprocess
import sys
import threading

import kiln
import numpy
import pytest
from conftest import ONE_KERNEL, fresh_kernels
from kiln import jit
from message_page import check

FIELDS = {"what", "spec", "key", "arch", "outcome", "why", "seconds"}
A = numpy.ones((16, 16), numpy.float16)


def fresh_epilogue():
    return fresh_kernels(1)[0]["epilogue"]


def call(epilogue):
    with kiln.device("emulator:sm_80"):
        return jit.gemm(A, A, epilogue=epilogue)


def test_a_compile_is_told_once():
    events, epilogue = [], fresh_epilogue()
    with kiln.on_compile(events.append):
        call(epilogue)
        call(epilogue)
    call(fresh_epilogue())
    (event,) = events
    assert set(event) == FIELDS
    assert (event["outcome"], event["why"], event["arch"]) == (
        "compiled",
        "not in the cache",
        "sm_80",
    )
    assert event["seconds"] > 0 and len(event["key"]) == 64
    assert event["spec"]["epilogue"] == epilogue
    assert kiln.prewarm(event["spec"], "sm_80")["compiled"] == 1  # what ran was PTX alone


def documents_of(mask):
    """A call with two kernels: the bounds of the elements that the mask reads, and attention."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    q = torch.randn(1, 200, 2, 64).half()
    name = fresh_kernels(1)[0]["epilogue"].split()[-1].replace(".", "_")
    numbers = f"ids_{name}"
    variant = jit.Variant(
        "mine", tensors={numbers: "i32[b, kv]"}, mask=mask.format(numbers=numbers)
    )
    ids = torch.zeros(1, 200, dtype=torch.int32)
    with kiln.device("emulator:sm_90a"):
        return jit.flash_attention(q, q, q, variant=variant(**{numbers: ids}))


def test_kernels_of_one_call_are_told_by_its_thread():
    """They are compiled at the same time, on several threads."""
    told = []
    kiln.clear_memory_cache()
    with kiln.on_compile(lambda event: told.append((event["outcome"], threading.get_ident()))):
        documents_of("kv <= q && {numbers} == 0")
        with pytest.raises(kiln.CompileError, match="kv <="):
            documents_of("kv <= q && {numbers} == 0 && nothing_of_this_name")
    outcomes, threads = zip(*told, strict=True)
    assert outcomes.count("failed") == 1 and outcomes.count("compiled") >= 1
    assert set(threads) == {threading.get_ident()}


def test_refusals_and_failures_are_told():
    events, epilogue = [], fresh_epilogue()
    with kiln.on_compile(events.append):
        with kiln.no_compile(), pytest.raises(kiln.CompileDisabled):
            call(epilogue)
        with pytest.raises(kiln.CompileError):
            call("acc +* 2")
    assert [event["outcome"] for event in events] == ["refused", "failed"]
    assert events[0]["why"] == "not in the cache, and compiling is off"
    assert events[0]["seconds"] == 0.0


def test_tools_are_told_apart():
    events = []
    specs = fresh_kernels(2)
    with kiln.on_compile(events.append):
        kiln.prewarm(specs[0], "sm_80")
        kiln.inspect(specs[1], "sm_80")
    assert [event["why"] for event in events] == ["prewarm", "inspect"]


def test_a_listener_may_call_kiln():
    epilogues, seen = [fresh_epilogue() for _ in range(2)], []

    def nested(event):
        seen.append(event["spec"]["epilogue"])
        assert call(epilogues[0]).shape == (16, 16)  # the very kernel that was missed
        call(epilogues[1])

    with kiln.on_compile(nested):
        call(epilogues[0])
    assert seen == epilogues


def test_what_a_listener_raises_is_logged():
    lines = []
    kiln.set_log(lambda level, text: lines.append(text))
    try:
        with kiln.on_compile(lambda event: 1 / 0):
            assert call(fresh_epilogue()).shape == (16, 16)
    finally:
        kiln.set_log(None)
    (line,) = lines
    check(RuntimeError(line), RuntimeError, "a listener of on_compile failed, which changes nothi")
    assert "ZeroDivisionError" in line


def test_listeners_are_removed_one_by_one():
    first, second = [], []
    one, two = kiln.on_compile(first.append), kiln.on_compile(second.append)
    call(fresh_epilogue())
    one.remove()
    one.remove()
    call(fresh_epilogue())
    two.remove()
    call(fresh_epilogue())
    assert (len(first), len(second)) == (1, 2)
    with pytest.raises(TypeError) as raised:
        kiln.on_compile(3)
    check(raised.value, TypeError, "must be callable as callback(event), got 3")


def test_threads_are_told_while_listeners_come_and_go():
    events, specs = [], fresh_kernels(4)
    ends = threading.Event()

    def come_and_go():
        while not ends.is_set():
            kiln.on_compile(lambda event: None).remove()

    visitor = threading.Thread(target=come_and_go)
    visitor.start()
    with kiln.on_compile(events.append):
        kiln.prewarm(specs, "sm_80", jobs=4)
    ends.set()
    visitor.join()
    assert sorted(event["spec"]["epilogue"] for event in events) == sorted(
        spec["epilogue"] for spec in specs
    )


RECORDED = """
import json, os, sys
import kiln, numpy
from kiln import jit
a = numpy.ones((16, 16), numpy.float16)
def call(epilogue):
    try:
        with kiln.device("emulator:sm_80"):
            jit.gemm(a, a, epilogue=epilogue)
    except kiln.Error:
        pass
kiln.stats()  # reads the environment
os.chdir("/")
for epilogue in json.loads(sys.argv[1]):
    call(epilogue)
    call(epilogue)
kiln.prewarm(json.loads(sys.argv[2]), "sm_80")
if not os.fork():
    call("acc + 7.5f")
    call(json.loads(sys.argv[1])[0])
    os._exit(0)
os.wait()
"""


def record(environment, epilogues, folder, **variables):
    return subprocess.run(
        [sys.executable, "-c", RECORDED, json.dumps(epilogues), json.dumps(fresh_kernels(1))],
        env={**environment, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_misses_are_recorded_and_prewarmed(environment, kiln_command, tmp_path):
    """A path that is relative, a call that is refused twice, a bad expression, a prewarm, a fork,
    and a second process."""
    path = tmp_path / "misses.jsonl"
    epilogues = ["acc * 3.5f", "acc +* 2"]
    record(environment, epilogues, tmp_path, KILN_RECORD=path.name).check_returncode()
    specs = [json.loads(line) for line in path.read_text().splitlines()]
    assert [spec["epilogue"] for spec in specs] == ["acc * 3.5f", "acc + 7.5f"]
    off = {"KILN_RECORD": str(path), "KILN_JIT": "off", "KILN_CACHE_DIR": str(tmp_path / "other")}
    record(environment, epilogues[:1], tmp_path, **off).check_returncode()
    assert len(path.read_text().splitlines()) == 4
    flags = ["prewarm", "--spec", path, "--arch", "sm_80", "--json"]
    fresh = {"KILN_CACHE_DIR": str(tmp_path / "fresh")}
    assert kiln_command(*flags, **fresh).json()["compiled"] == 2
    # Then no call misses anything.
    path.unlink()
    fresh = {**fresh, "KILN_RECORD": str(path), "KILN_JIT": "off"}
    record(environment, epilogues[:1], tmp_path, **fresh).check_returncode()
    assert not path.exists()


def test_processes_share_a_record(environment, tmp_path):
    path = tmp_path / "misses.jsonl"
    code = (
        "import sys, kiln\nwith kiln.device('emulator:sm_80'):\n"
        "    import numpy; a = numpy.ones((16, 16), numpy.float16)\n"
        "    for i in range(100):\n"
        "        try: kiln.jit.gemm(a, a, epilogue=f'acc * {sys.argv[1]}.f + {i}.f')\n"
        "        except kiln.CompileDisabled: pass\n"
    )
    variables = {**environment, "KILN_RECORD": str(path), "KILN_JIT": "off"}
    runs = [subprocess.Popen([sys.executable, "-c", code, str(i)], env=variables) for i in range(4)]
    assert [run.wait(120) for run in runs] == [0] * 4
    lines = path.read_text().splitlines()
    assert len({json.loads(line)["epilogue"] for line in lines}) == len(lines) == 400


@pytest.mark.parametrize("target", ["/", "/proc/none/x", "/dev/full"])
def test_a_record_that_cannot_be_written_is_one_warning(environment, tmp_path, target):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    off = {"KILN_RECORD": target, "KILN_JIT": "off"}
    run = record(environment, ["acc * 3.5f", "acc * 4.5f"], tmp_path, **off)
    assert run.returncode == 0
    lines = [line for line in run.stderr.splitlines() if "KILN_RECORD" in line]
    assert len(lines) == 1
    check(ValueError(lines[0]), ValueError, f"cannot append to {target}: ")


def test_a_bad_line_is_named(kiln_command, tmp_path):
    path = tmp_path / "misses.jsonl"
    path.write_text(json.dumps(ONE_KERNEL) + "\n\n{\n")
    run = kiln_command("prewarm", "--spec", path, "--arch", "sm_80")
    assert run.code == 2
    assert f"line 3 of {path} is not JSON" in run.stderr
