"""Every Python block of README, docs/ and bench/ runs as a reader pastes it: line by line into a
fresh interactive interpreter, in an empty folder, with an empty cache, on a machine without a GPU.
Nothing is defined for it, replaced in it or skipped, and it takes at most 20 seconds of CPU time.

Their C++ and C blocks are run by tests/cpp/test_snippets.py, the shell's by test_shell_snippets.py.
"""

import os
import pathlib
import re
import subprocess
import sys

import kiln
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("bench/*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
MOST_SECONDS = 20

# An interactive interpreter whose first error ends it. Blank lines end a statement, as they do
# where a reader pastes.
SHELL = """
import code, resource, sys

class Shell(code.InteractiveConsole):
    def showtraceback(self, *args, **kwargs):
        super().showtraceback()
        raise SystemExit(1)

    def showsyntaxerror(self, *args, **kwargs):
        super().showsyntaxerror(*args, **kwargs)
        raise SystemExit(1)

shell = Shell({"__name__": "__main__"})
for line in [*sys.stdin.read().splitlines(), ""]:
    more = shell.push(line)
assert not more, "the block ends within a statement"
both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
spent = sum(usage.ru_utime + usage.ru_stime for usage in both)
assert spent <= float(sys.argv[1]), f"took {spent:.0f} s of CPU time"
"""


def blocks_of(page):
    """(page:line, code) of each block."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        yield pytest.param(match["code"], id=f"{page.name}:{line}")


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.fixture
def paste(tmp_path):
    """Pastes a text into a shell that knows nothing of this process."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")}
    variables.update(KILN_CACHE_DIR=str(tmp_path / "cache"), CUDA_VISIBLE_DEVICES="")
    if kiln.diagnose()["driver"]["found"]:
        variables["KILN_DEVICE"] = "emulator:sm_90a"
    folder = tmp_path / "empty"
    folder.mkdir()

    def paste(text, most_seconds=MOST_SECONDS):
        return subprocess.run(
            [sys.executable, "-c", SHELL, str(most_seconds)], input=text, env=variables, cwd=folder,
            capture_output=True, text=True, timeout=300, check=False,
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


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = kiln.stats()\n", "name 'kiln' is not defined"),
        ("for x in range(2):\n    x\nprint(x)\n", "SyntaxError"),
        ("print((1,\n", "ends within a statement"),
        ("import time\nwhile time.process_time() < 1.1:\n    pass\n", "took 1 s of CPU time"),
    ],
)
def test_a_block_that_does_not_run_as_pasted_is_found(text, error, paste):
    done = paste(text, most_seconds=1)
    assert done.returncode != 0 and error in done.stderr
