"""Compiling needs NVRTC but no GPU. The cache is a fresh one, so that every compile is real.

`KILN_TEST_CACHE`: an empty folder for it, whose PTX the emulated tests run afterwards.
"""

import os
import tempfile

CACHE = tempfile.TemporaryDirectory(prefix="kiln-compile-tests-")
# Before kiln reads its settings.
os.environ["KILN_CACHE_DIR"] = os.environ.get("KILN_TEST_CACHE", CACHE.name)
os.environ["KILN_CACHE_PATH"] = ""
os.environ.pop("KILN_JIT", None)


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/compile/golden/*.cu anew"
    )
