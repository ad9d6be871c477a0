"""Every text of an error or warning stands in docs/troubleshooting.md, with what to do about it."""

import re

import messages
import pytest

PAGE = (messages.ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
FAULTS = (messages.ROOT / "runtime/emulator/machine/faults.cpp").read_text(encoding="utf-8")
# Sentences that are no messages.
OTHERS = {"-std=c++17 -default-device --no-source-include --minimal --ptxas-options=-v"}


def plain(text):
    """Without what Markdown adds, so that a message matches however it is set."""
    return " ".join(re.sub(r"[`\\]", "", text).split())


def missing(page, pieces):
    page = plain(page)
    return [
        piece for piece in pieces if plain(piece).strip(" '\"") not in page and piece not in OTHERS
    ]


SOURCES = {name: pieces for name, pieces in messages.sources() if pieces}


@pytest.mark.parametrize("name", SOURCES)
def test_every_message_is_listed(name):
    absent = missing(PAGE, SOURCES[name])
    assert not absent, f"docs/troubleshooting.md lacks, with its cause and cure: {absent}"


def test_every_fault_of_the_emulated_device_is_listed():
    names = re.findall(r'^    "(.+)",$', FAULTS, re.MULTILINE)
    assert len(names) == 17
    for name in names:
        assert f"| `{name}` |" in PAGE


def test_every_row_has_a_cure():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row)
        assert len(cells) == 4, row
        assert cells[2].strip(), f"this row says nothing about what to do: {row}"


def test_files_that_hold_no_errors_exist():
    for name in messages.NO_ERRORS:
        assert (messages.ROOT / name).is_file(), f"{name} is gone: take it off the list"


def test_the_collection_can_fail():
    cpp = """
      // "a comment is no message"
      throw_value(subject, "must be one of " + names + "; take "
                           "another \\"name\\" than this");
      R"(raw text is generated source)" "short";
    """
    assert messages.pieces_of_cpp(cpp) == ["must be one of ", '; take another "name" than this']
    python = (
        'raise ValueError(f"{x} must be a number of {y}, got {z!r}")\nprint("not an error, no")'
    )
    assert messages.pieces_of_python(python) == [" must be a number of "]
    assert missing("`must be one of` …", ["must be one of ", "must be two of "]) == [
        "must be two of "
    ]
    assert len(SOURCES) > 40 and sum(map(len, SOURCES.values())) > 300
