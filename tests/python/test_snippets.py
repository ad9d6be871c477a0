"""The Python blocks of README and docs/ run as they stand, on the emulated device.

A page's blocks share their names, top to bottom; kiln, jit, numpy and torch are imported. Before a
block stand, unseen by readers, the notes that it needs:

    <!-- test: skip: why it cannot run here -->
    <!-- test: replace 4096 -> 64 -->
    <!-- test: first: q = torch.randn(1, 64, 4, 64).half() -->

`device="cuda"` becomes `device="cpu"` in every block.
"""

import functools
import pathlib
import re

import kiln
import numpy
import pytest
import torch
from kiln import jit

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("bench/*.md"))]
BLOCK = re.compile(
    r"(?P<notes>(?:<!-- test: (?:(?!-->).)*-->\n+)*)```python\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
NOTE = re.compile(r"<!-- test: (skip|replace|first):?\s+(.*?)\s*-->", re.DOTALL)


class Block:
    """One block of a page: `code` as it is run, or `skip`, why it is not."""

    def __init__(self, page, text, match):
        line = text.count("\n", 0, match.start("code")) + 1
        self.page, self.name = page, f"{page.name}:{line}"
        self.code = match["code"].replace('device="cuda"', 'device="cpu"')
        self.skip, first = None, ""
        for kind, value in NOTE.findall(match["notes"]):
            if kind == "skip":
                self.skip = value
            elif kind == "first":
                first += value + "\n"
            else:
                old, _, new = value.partition(" -> ")
                assert old in self.code, f"{self.name}: the block has no {old!r} to replace"
                self.code = self.code.replace(old, new)
        self.first = first

    def run(self, names):
        """Runs it; a traceback names the page and the line."""
        exec(compile(self.first, f"{self.name} (note)", "exec"), names)
        padding = "\n" * (int(self.name.rpartition(":")[2]) - 1)
        exec(compile(padding + self.code, str(self.page), "exec"), names)


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    return [Block(page, text, match) for match in BLOCK.finditer(text)]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@functools.cache
def names_of(page):
    """The names that a page's blocks share, and the blocks that have run."""
    return {"kiln": kiln, "jit": jit, "numpy": numpy, "torch": torch}, set()


@pytest.fixture(autouse=True)
def as_before(tmp_path, monkeypatch):
    """A folder of its own, and the process's settings afterwards as they were."""
    monkeypatch.chdir(tmp_path)
    previous = kiln.set_jit("auto")
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        yield
    kiln.set_jit(previous)
    kiln.set_log(None)
    kiln.set_tuning(None)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_block(block):
    if block.skip:
        pytest.skip(f"{block.name}: {block.skip}")
    names, done = names_of(block.page)
    for other in BLOCKS[: BLOCKS.index(block) + 1]:
        if other.page == block.page and not other.skip and other.name not in done:
            done.add(other.name)
            other.run(names)


def test_every_block_is_found():
    """The pattern would pass over a block whose fence it does not know."""
    fences = sum(page.read_text(encoding="utf-8").count("```python") for page in PAGES)
    assert len(BLOCKS) == fences > 5


def test_notes_change_the_block():
    text = (
        "<!-- test: replace 4096 -> 64 -->\n<!-- test: first: n = 1 -->\n"
        '```python\nx = f(4096, device="cuda")\n```\n'
    )
    (block,) = [Block(ROOT / "README.md", text, match) for match in BLOCK.finditer(text)]
    assert (block.code, block.first) == ('x = f(64, device="cpu")\n', "n = 1\n")
