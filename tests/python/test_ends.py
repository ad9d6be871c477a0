"""The ends of processes: Python ends while a thread is inside Kiln, a process forks while another
thread compiles, a subinterpreter imports the package."""

import json
import os
import subprocess
import sys

import pytest
from conftest import fresh_kernels

RUNS = 8  # at different moments: where an end is not safe, a third of them crash or more

SETUP = """
import json, os, sys, threading, time
import numpy, kiln
from kiln import jit

a = numpy.ones((16, 16), numpy.float16)
large = numpy.ones((256, 256), numpy.float16)
specs = json.loads(sys.argv[1])
delay = float(sys.argv[2])

def cached():
    while True:
        jit.gemm(a, a)

def emulate():
    while True:
        jit.gemm(large, large)

def compile():
    for spec in specs:
        kiln.inspect(spec, "sm_80")

def prewarm():
    kiln.prewarm(specs, "sm_80", jobs=2, progress=lambda *line: time.sleep(0.001))
"""

EXIT = """
jit.gemm(a, a)
threading.Thread(target=globals()[sys.argv[3]], daemon=True).start()
time.sleep(delay)
"""


@pytest.fixture(scope="module")
def warm_environment(tmp_path_factory):
    """Of child processes that find the kernels of SETUP in their cache."""
    folder = tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "KILN_CACHE_DIR": str(folder), "KILN_DEVICE": "emulator"}
    code = SETUP + "jit.gemm(a, a), jit.gemm(large[:16], large)"
    run_python(code, environment, [], 0).check_returncode()
    return environment


def run_python(code, environment, specs, delay, *more):
    no_warning = "ignore:This process:DeprecationWarning"  # of fork beside threads, since 3.12
    return subprocess.run(
        [sys.executable, "-W", no_warning, "-c", code, json.dumps(specs), str(delay), *more],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("work", ["cached", "emulate", "compile", "prewarm"])
def test_python_ends_while_a_thread_is_inside_kiln(warm_environment, work):
    for run in range(RUNS):
        specs = fresh_kernels(6 if work == "prewarm" else 3)
        done = run_python(SETUP + EXIT, warm_environment, specs, 0.03 + 0.04 * run, work)
        assert (done.returncode, done.stderr) == (0, ""), f"run {run}"


# The child says how each of its calls ended; one that hangs is ended by its alarm.
FORK = """
import signal
thread = threading.Thread(target=compile)
jit.gemm(a, a)
thread.start()
time.sleep(delay)
child = os.fork()
if child == 0:
    signal.alarm(60)
    assert (jit.gemm(a, a) == 16).all()
    for epilogue in (specs[0]["epilogue"], "acc + 1.0f"):
        try:
            jit.gemm(a, a, epilogue=epilogue)
            kiln.inspect({"op": "gemm", "dtype": "float16", "epilogue": epilogue,
                          "block_m": 32, "stages": 4}, "sm_80")
        except kiln.CompileError as error:
            assert "was forked while another thread compiled" in str(error), error
    os._exit(0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_while_another_thread_compiles_does_not_hang(warm_environment):
    for run in range(RUNS):
        done = run_python(SETUP + FORK, warm_environment, fresh_kernels(2), 0.03 + 0.04 * run)
        assert (done.returncode, done.stderr) == (0, ""), f"run {run}"


SUBINTERPRETER = """
import sys
if sys.argv[3] == "second":
    import kiln
try:
    import _interpreters as interpreters  # of Python 3.13 and later
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
try:
    import kiln
except ImportError as error:
    print(error)
'''
interpreters.run_string(interpreters.create(), code)
"""


@pytest.mark.parametrize("import_is", ["first", "second"])
def test_a_subinterpreter_cannot_import(environment, import_is):
    done = run_python(SUBINTERPRETER, environment, [], 0, import_is)
    assert done.returncode == 0, done.stderr
    assert "use threads, or processes with the start method spawn" in done.stdout
