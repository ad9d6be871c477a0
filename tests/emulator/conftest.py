"""The emulated device for every test of this folder, which are about the device itself.

`KILN_TEST_CACHE`: the folder with the kernels that tests/compile has compiled.
"""

import os
import tempfile

CACHE = tempfile.TemporaryDirectory(prefix="kiln-emulator-tests-")
# Before the first import of kiln, which reads them once.
os.environ["KILN_CACHE_DIR"] = os.environ.get("KILN_TEST_CACHE", CACHE.name)
os.environ["KILN_CACHE_PATH"] = ""
os.environ.pop("KILN_JIT", None)
os.environ.pop("KILN_DEVICE", None)
