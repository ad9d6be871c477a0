"""Skips this folder, aloud, where PyTorch has no CUDA device; there, a missing kiln is a failure.

The kernels that the chosen tests need are compiled ahead of them, many at a time.
"""

import os
import pathlib
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the helpers beside this file, in every import mode


from presence import REASON  # noqa: E402

if REASON:
    collect_ignore = [path.name for path in HERE.glob("test_*.py") if path.stem != "test_device"]
else:
    CACHE = tempfile.TemporaryDirectory(prefix="kiln-gpu-tests-")
    os.environ["KILN_CACHE_DIR"] = CACHE.name  # before the first import: it is read once
    os.environ["KILN_CACHE_PATH"] = ""
    os.environ.pop("KILN_JIT", None)
    import kiln  # noqa: F401


def pytest_terminal_summary(terminalreporter):
    if REASON:
        terminalreporter.write_line(f"tests/gpu skipped as a whole: {REASON}")


@pytest.fixture(scope="session")
def compiled(request):
    """Every collected test's `group` has been run once, in parallel threads."""
    import torch
    from ahead import compile_ahead

    compile_ahead(request.session.items)

    torch.cuda.synchronize()
