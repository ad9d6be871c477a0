"""Every Python block of README, docs/ and bench/ runs as a reader pastes it: line by line into a
fresh interactive interpreter, in an empty folder, with an empty cache, on a machine without a GPU.
Nothing is defined for it, replaced in it or skipped, and it takes at most 20 seconds of CPU time.

A block that imports torch is pasted into a process forked from one that has imported torch and
nothing of Kiln: torch's import takes 2.5 s of CPU time, more than most blocks. It still has to
import torch itself, as its namespace is empty.

Their C++ and C blocks are run by tests/cpp/test_snippets.py, the shell's by test_shell_snippets.py.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kiln
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("bench/*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
IMPORTS_TORCH = re.compile(r"^(import|from) torch\b", re.MULTILINE)
MOST_SECONDS = 20
SHELL = (pathlib.Path(__file__).parent / "paste_shell.py").read_text(encoding="utf-8")


def blocks_of(page):
    """(page:line, code) of each block."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        yield pytest.param(match["code"], id=f"{page.name}:{line}")


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def variables():
    """The environment of this process without Kiln's, on a machine without a GPU."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")}
    return {**kept, "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The process with torch. It prints on stderr only why it ends early."""
    with subprocess.Popen(
        [sys.executable, "-c", SHELL, "serve"], env=variables(),
        cwd=tmp_path_factory.mktemp("server"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as process:  # fmt: skip
        yield process


def paste_into_fork(server, text, folder, own, most_seconds, timeout):
    """Returns what subprocess.run would return of a process that the server forks."""
    files = [folder / name for name in ("stdin", "stdout", "stderr")]
    for file in files:
        file.write_text(text if file.name == "stdin" else "", encoding="utf-8")
    request = {"files": [str(file) for file in files], "folder": str(folder / "empty")}
    request.update(variables=own, most_seconds=most_seconds, timeout=timeout)
    with contextlib.suppress(BrokenPipeError):  # the lack of an answer says the same
        server.stdin.write(json.dumps(request).encode() + b"\n")
    answer = server.stdout.readline()
    assert answer, f"the process with torch has ended: {server.stderr.read().decode()}"
    status = json.loads(answer)
    written = [file.read_text(encoding="utf-8") for file in files[1:]]
    if status is None:
        raise subprocess.TimeoutExpired("block", timeout, *written)
    return subprocess.CompletedProcess("block", status, *written)


@pytest.fixture
def paste(tmp_path, server):
    """Pastes a text into a shell that knows nothing of this process, nor of earlier texts."""

    def paste(text, most_seconds=MOST_SECONDS, timeout=300):
        folder = pathlib.Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "empty").mkdir()
        own = {"KILN_CACHE_DIR": str(folder / "cache")}
        if kiln.diagnose()["driver"]["found"]:
            own["KILN_DEVICE"] = "emulator:sm_90a"
        if IMPORTS_TORCH.search(text):
            return paste_into_fork(server, text, folder, own, most_seconds, timeout)
        return subprocess.run(
            [sys.executable, "-c", SHELL, str(most_seconds)], input=text,
            env={**variables(), **own}, cwd=folder / "empty",
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    return paste


@pytest.mark.parametrize("code", BLOCKS)
def test_block(code, paste):
    done = paste(code)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_block_is_found():
    """The pattern would pass over a block whose fence it does not know."""
    fences = sum(page.read_text(encoding="utf-8").count("```python") for page in PAGES)
    assert len(BLOCKS) == fences > 15


def test_nothing_helps_a_block():
    """Notes that define, replace or skip something, unseen by readers."""
    for page in PAGES:
        notes = re.findall(r"<!-- *test: *(?!build\b)(\w+)", page.read_text(encoding="utf-8"))
        assert not notes, f"{page.name} hides help for its blocks: {notes}"


@pytest.mark.parametrize("first", ["", "import torch\n"], ids=["fresh", "forked"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = kiln.stats()\n", "name 'kiln' is not defined"),
        ("for x in range(2):\n    x\nprint(x)\n", "SyntaxError"),
        ("print((1,\n", "ends within a statement"),
        ("import time\nwhile time.process_time() < 1.1:\n    pass\n", "took 1 s of CPU time"),
        ("import sys\nsys.exit('no GPU')\n", "no GPU"),
        ("import os\nos.kill(os.getpid(), 9)\n", ""),
    ],
)
def test_a_block_that_does_not_run_as_pasted_is_found(first, text, error, paste):
    done = paste(first + text, most_seconds=1)
    assert done.returncode != 0 and error in done.stderr


@pytest.mark.parametrize("first", ["", "import torch\n"], ids=["fresh", "forked"])
def test_a_block_that_does_not_end_is_killed(first, paste):
    with pytest.raises(subprocess.TimeoutExpired):
        paste(first + "import time\ntime.sleep(300)\n", timeout=1)
    assert paste(first + "print(1)\n").stdout == "1\n"


# A block can leave all of this behind, where it runs in the same process as the next one.
EARLIER = """import os, threading
import torch
import kiln
x = torch.x = os.environ["X"] = "1"
torch.set_default_dtype(torch.float64)
open("x", "w").close()
threading.Timer(0.2, print, ["from a thread"]).start()
print("from the block")
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("torch.ones(1)\n", "name 'torch' is not defined"),
        ("from torch import nn\ntorch.ones(1)\n", "name 'torch' is not defined"),
        ("import torch\nx\n", "name 'x' is not defined"),
        ("import torch\ntorch.x\n", "has no attribute 'x'"),
        ("import torch\nassert torch.ones(1).dtype == torch.float64\n", "AssertionError"),
        ("import torch, os\nos.environ['X']\n", "KeyError"),
        ("import torch\nopen('x')\n", "FileNotFoundError"),
        ("import torch, sys\nsys.modules['kiln']\n", "KeyError"),
    ],
)
def test_a_block_that_relies_on_an_earlier_one_is_found(text, error, paste):
    earlier, done = paste(EARLIER), paste(text)
    assert earlier.returncode == 0, earlier.stderr
    assert earlier.stdout == "from the block\nfrom a thread\n"
    assert done.returncode != 0 and error in done.stderr
