"""The `kiln` commands in the shell blocks of the pages for a first reading run as pasted, in a
folder in which the page's Python blocks were run before. What builds or installs is left to
tests/cpp and `make`; a block of it is marked `<!-- test: build -->`.

The pages share a cache, and with KILN_TEST_CACHE that of the other tests: two of them prewarm the
same model, in a minute of processor time."""

import os
import pathlib
import re
import subprocess
import sys

import kiln
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "docs/getting_started.md", "docs/deploying.md", "docs/emulator.md"]
BLOCK = re.compile(r"^(<!-- test: build -->\n)?```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page):
    """(language, code) of the blocks that are no build, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(language, code) for build, language, code in BLOCK.findall(text) if not build]


def kiln_commands(code):
    """The lines that call `kiln`, with those that continue them."""
    lines = code.replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if line.startswith("kiln "))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return os.environ.get("KILN_TEST_CACHE") or tmp_path_factory.mktemp("pages") / "cache"


@pytest.mark.parametrize("page", PAGES)
def test_commands_of(page, cache, tmp_path):
    folder, tools = tmp_path / "empty", tmp_path / "bin"
    folder.mkdir(), tools.mkdir()
    (tools / "kiln").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kiln "$@"\n')
    (tools / "kiln").chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")}
    variables.update(KILN_CACHE_DIR=str(cache), CUDA_VISIBLE_DEVICES="")
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    if kiln.diagnose()["driver"]["found"]:
        variables["KILN_DEVICE"] = "emulator:sm_90a"
    ran = 0
    for language, code in blocks(page):
        if language == "python":
            command = [sys.executable, "-c", code]
        elif commands := kiln_commands(code):
            command, ran = ["bash", "-ec", commands], ran + 1
        else:
            continue
        done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    assert ran, f"{page} has no command"
