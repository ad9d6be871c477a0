"""Every C++ and C block of README and docs/ is a whole program: pasted into a file and built as
docs/cpp.md says, it runs on a machine without a GPU."""

import pathlib
import re
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```(c|cpp)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMPILERS = {"cpp": ["c++", "-std=c++20"], "c": ["cc", "-std=c99"]}
MOST_SECONDS = 20


def programs():
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            yield pytest.param(match[1], match[2], id=f"{page.name}:{line}")


@pytest.mark.parametrize("prefix", ["static"], indirect=True)
@pytest.mark.parametrize(("language", "code"), list(programs()))
def test_it_runs(run, pkg_config, tmp_path, language, code):
    source, program = tmp_path / f"app.{language}", tmp_path / "app"
    source.write_text(code)
    flags = pkg_config("--cflags", "--libs")
    run(*COMPILERS[language], "-Wall", "-Wextra", "-Werror", source, *flags, "-o", program)
    start = time.monotonic()
    printed = run(program, KILN_CACHE_DIR=tmp_path / "cache")
    assert printed and time.monotonic() - start < 3 * MOST_SECONDS  # other tests run beside it


def test_there_are_some():
    assert len(list(programs())) >= 6
