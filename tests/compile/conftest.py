"""Compiling needs NVRTC but no GPU. The cache is a fresh one, so that every compile is real.

`KILN_TEST_CACHE`: an empty folder for it, whose PTX the emulated tests run afterwards.
"""

import os
import tempfile

import turn_marker

CACHE = tempfile.TemporaryDirectory(prefix="kiln-compile-tests-")
# Before kiln reads its settings.
os.environ["KILN_CACHE_DIR"] = os.environ.get("KILN_TEST_CACHE", CACHE.name)
os.environ["KILN_CACHE_PATH"] = ""
os.environ.pop("KILN_JIT", None)


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/compile/golden/*.cu anew"
    )
    parser.addoption(
        "--full", action="store_true", help="compile every built-in kernel, as KILN_TEST_FULL=1"
    )


def pytest_configure(config):
    if config.getoption("--full", False):
        os.environ["KILN_TEST_FULL"] = "1"


def pytest_collection_modifyitems(config, items):
    turn_marker.leave_out_waiting(config, items)


def pytest_terminal_summary(terminalreporter):
    seed = os.environ.get("KILN_TEST_SEED") or "0"
    full = os.environ.get("KILN_TEST_FULL") == "1"
    what = "all kernels" if full else f"the cover and the sample of seed {seed}"
    terminalreporter.write_line(f"tests/compile took {what} (tests/support/kernel_list.h)")
