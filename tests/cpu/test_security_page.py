"""Every row of docs/security.md's table of threats names tests that exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
# `file`: "a Catch2 test", `a_pytest_test`
FILE = re.compile(r"`(tests/[\w/.]+)`: (.*?)(?=; `tests/|$)")
NAME = re.compile(r'"([^"]+)"|`(test_\w+)`')


def rows(page):
    """The last cell of each row of the table of threats."""
    table = page.split("| threat |")[1].split("\n\n")[0]
    return [line.split("|")[-2].strip() for line in table.splitlines()[2:]]


def has_test(file, name):
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".py"):
        return re.search(rf"^def {name}\(", text, re.MULTILINE)
    return f'TEST_CASE("{name}"' in text


def faults(page):
    for row in rows(page):
        tests = [
            (file, next(filter(None, found)))
            for file, names in FILE.findall(row)
            for found in NAME.findall(names)
        ]
        if not tests:
            yield f"no test: {row}"
        for file, name in tests:
            if not (ROOT / file).is_file() or not has_test(file, name):
                yield f"{file} has no test {name!r}"


def test_each_threat_has_tests_that_exist():
    assert len(rows(PAGE)) > 15
    assert list(faults(PAGE)) == []


def test_a_row_without_a_test_is_found():
    head = "| threat | what Kiln does | tested by |\n|---|---|---|\n"
    for cell in ("", '`tests/cpu/none.cpp`: "x"', "`tests/python/test_models.py`: `test_none`"):
        assert list(faults(f"{head}| a | b | {cell} |\n\n"))
