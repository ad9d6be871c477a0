"""Every Python example runs on the emulated device and says that its result was checked.

tests/kernels/cuda/test_examples.py runs the same files on a GPU.
"""

import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))
MAX_LINES = 60
LONGER = {"12_paged_generation": 100}  # a server's loop, with what it is compared with
BY_NAME = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)

# What an example must print beside its last line, "ok: ...".
PRINTS = {
    "00_demo": r"(?s)(cold cache: compiled.*){2}(once more: cached.*){2}(registers a thread.*){2}"
    r"attention .* s, relative error \S+ from fp32.*gemm .* s, relative error \S+ from fp32",
    "01_first_call": r"first call .* ms, compiled",
    "04_prewarm_strict": r"13 compiled, 0 cached(?s:.*)refused, as it should be",
    "07_sdpa_drop_in": r"eager: differs .*\ncompiled: differs",
    "08_read_inspect": r"why: sm_90a path",
    "09_debug_a_kernel": r"race on shared memory: (?s:.*)out-of-bounds access: read of 4 bytes",
    "12_paged_generation": r"5 requests .*'mixed': [1-9].*'one each': [1-9]",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A future of each example's process, two at a time, all on one cache; a GPU is not seen."""
    folder = tmp_path_factory.mktemp("examples")
    variables = {
        "KILN_CACHE_DIR": str(folder / "cache"),
        "KILN_DEVICE": "emulator:sm_90a",
        "CUDA_VISIBLE_DEVICES": "",
    }

    def run(path):
        return subprocess.run(
            [sys.executable, str(path)], env={**os.environ, **variables}, cwd=folder,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        yield {path: pool.submit(run, path) for path in EXAMPLES}


@BY_NAME
def test_it_runs_and_checks_its_result(path, runs):
    done = runs[path].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("ok: "), done.stdout
    assert re.search(PRINTS.get(path.stem, "ok: "), done.stdout), done.stdout


@BY_NAME
def test_it_is_short_and_says_what_it_shows(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""') and len(text.splitlines()) < LONGER.get(path.stem, MAX_LINES)
    assert re.search(r"\bassert|assert_close|compare\(", text), "it checks nothing"


def test_the_list_names_every_example():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([0-9]\w+\.py)\]\(\1\)", text, re.MULTILINE)
    assert listed == [path.name for path in EXAMPLES]


def test_the_numbers_are_an_order():
    numbers = [path.name[:2] for path in EXAMPLES]
    assert len(set(numbers)) == len(numbers) >= 10
    assert set(PRINTS) <= {path.stem for path in EXAMPLES}, "an example was renamed"
