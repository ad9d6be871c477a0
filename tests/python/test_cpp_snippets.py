"""C++ blocks of README and docs/ that say what surrounds them compile against the public headers:

    <!-- test: given: void* q_memory; void* stream; -->

Other C++ blocks are excerpts of templates, which NVRTC compiles elsewhere.
"""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(
    r"<!-- test: given: ((?:(?!-->).)*)-->\n```cpp\n(.*?)^```", re.MULTILINE | re.DOTALL
)
COMPILER = shutil.which("c++") or "c++"


def programs():
    """Each block as a program: its includes, and a function of what is given and of the rest."""
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        for number, (given, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            includes = "".join(re.findall(r"^#include .*\n", code, re.MULTILINE))
            body = re.sub(r"^#include .*\n", "", code, flags=re.MULTILINE)
            text = f"{includes}void block() {{\n{given}\n{body}}}\n"
            yield pytest.param(text, id=f"{page.name}:{number}")


def compile_text(text):
    command = [COMPILER, "-std=c++20", "-Wall", "-fsyntax-only", "-x", "c++", "-"]
    include = f"-I{ROOT / 'jit/include'}"
    return subprocess.run([*command, include], input=text, capture_output=True, text=True)


@pytest.mark.parametrize("text", list(programs()))
def test_it_compiles(text):
    done = compile_text(text)
    assert done.returncode == 0, done.stderr


def test_there_are_some_and_a_wrong_one_fails():
    assert len(list(programs())) >= 2
    assert compile_text("#include <kiln/kiln.h>\nkiln::Plan plan;").returncode != 0
