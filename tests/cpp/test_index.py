"""The editors' index of the device templates: clang parses each with the commands that it gives."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TEMPLATES = ROOT / "templates"


@pytest.fixture(scope="module")
def entries(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    run("cmake", f"-DOUTPUT={folder}", "-P", ROOT / "cmake" / "index.cmake")
    return json.loads((folder / "compile_commands.json").read_text())


@pytest.fixture(scope="module")
def parse():
    """Parses as an entry says; returns the unit. Skips where pip's libclang is not installed."""
    cindex = pytest.importorskip("clang.cindex", reason="needs pip's libclang, as make test has it")
    index = cindex.Index.create()
    # Without the compiler's name, which the library does not want.
    return lambda arguments: index.parse(None, args=arguments[1:])


def test_each_template_and_golden_kernel_has_an_entry(entries):
    goldens = (ROOT / "tests" / "compile" / "golden").glob("*.cu")
    expected = {str(path) for path in (*TEMPLATES.rglob("*.cuh"), *goldens)}
    assert {entry["file"] for entry in entries} == expected
    assert all(entry["arguments"][-1] == entry["file"] for entry in entries)


def test_clang_understands_every_entry(entries, parse):
    """A template stands alone, and each golden kernel instantiates what it uses."""
    faults = [str(fault) for entry in entries for fault in parse(entry["arguments"]).diagnostics]
    assert not faults, "\n".join(faults)


def test_a_virtual_name_leads_to_the_file(entries, parse):
    """So that "go to definition" opens templates/ and not /kiln."""
    (entry,) = [entry for entry in entries if entry["file"].endswith("attention_d128_causal.cu")]
    unit = parse(entry["arguments"])
    names = {include.include.name for include in unit.get_includes()}
    assert str(TEMPLATES / "attention" / "softmax.cuh") in names
    assert not [name for name in names if name.startswith("/kiln/")]


def test_a_fault_would_show(entries, parse):
    arguments = list(entries[0]["arguments"])
    arguments[arguments.index("-include")] = "-Wno-such-include"  # without NVRTC's builtins
    assert parse(arguments).diagnostics
